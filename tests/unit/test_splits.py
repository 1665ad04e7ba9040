"""Splitting by entity: nothing connected is torn apart, fixed splits are kept, leaks and impossible shares are said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import UserError
from sql_agent.data.splits import assign, check_leaks, connected, make_items, normalised
from sql_agent.data.templates import SPLITS
from sql_agent.records import Evidence, Question


def question(name: str, *rows: int, table: str = "t", entity: dict[str, Any] | None = None, **meta: Any) -> Question:
    evidence = [Evidence(source_table=table, row_id=row, field="f", quote="x") for row in rows]
    return Question(id=name, question=f"问{name}", evidence=evidence, meta={"entity": entity, **meta})


def items(*questions: Question) -> Any:
    return make_items(enumerate(questions, start=1))


def split(*questions: Question, val: float = 0.1, test: float = 0.1, seed: int = 1) -> tuple[dict[str, Any], list[str]]:
    result, warnings = assign(items(*questions), val_share=val, test_share=test, seed=seed)
    return {name: [item.question.id for item in result[name]] for name in SPLITS}, warnings


@given(
    rows=st.lists(st.lists(st.integers(0, 40), max_size=3), min_size=1, max_size=60),
    seed=st.integers(0, 5),
    val=st.sampled_from([0, 0.1, 0.3]),
)
def test_no_key_is_ever_in_two_splits(rows: list[list[int]], seed: int, val: float) -> None:
    everything = items(*(question(str(i), *touched) for i, touched in enumerate(rows)))
    result, _ = assign(everything, val_share=val, test_share=0.2, seed=seed)
    keys = [{key for item in result[name] for key in item.keys} for name in SPLITS]
    assert sum(map(len, keys)) == len(set().union(*keys))
    assert sorted(item.line for name in SPLITS for item in result[name]) == [item.line for item in everything]
    assert val > 0 or not result["val"]


def test_shares_are_met_and_depend_on_the_seed() -> None:
    questions = [question(f"{i}", i // 3) for i in range(300)]
    result, warnings = split(*questions)
    assert [len(result[name]) for name in SPLITS] == pytest.approx([240, 30, 30], abs=3)
    assert not warnings
    assert split(*questions)[0] == result
    assert split(*questions, seed=2)[0] != result


def test_few_rows_still_fill_every_split() -> None:
    result, _ = split(question("a", 1), question("b", 2), question("c", 3))
    assert {name: len(ids) for name, ids in result.items()} == {"train": 1, "val": 1, "test": 1}


def test_one_large_group_is_a_warning_with_sizes() -> None:
    result, (warning,) = split(*(question(str(i), 1) for i in range(95)), *(question(f"x{i}", i) for i in range(2, 7)))
    assert len(result["train"]) == 95
    assert "train 95 (wanted 80)" in warning
    assert "has 95 rows (row 1 is one)" in warning


def test_ids_of_meta_and_rows_of_evidence_are_one_entity() -> None:
    both = question("both", 1, entity={"drug_id": 1, "drug_name": "甲"})
    only_meta = question("meta", entity={"drug_id": 2})
    only_evidence = question("evidence", 2)
    pair = question("pair", entity={"drug_id_a": 3, "drug_id_b": 4, "drug_name_b": "丁"})
    by_list = question("list", entity={"drug_ids": [4, 5], "keyword": "k", "paid": 1})
    by_name = question("name", entity={"drug_name": "丁"})
    groups = connected(items(both, only_meta, only_evidence, pair, by_list, by_name))
    assert [[item.question.id for item in group] for group in groups] == [
        ["both"],
        ["meta", "evidence"],
        ["pair", "list", "name"],
    ]


def test_ids_of_different_kinds_or_tables_are_different() -> None:
    questions = [
        question("a", 1, table="drug"),
        question("b", 1, table="disease"),
        question("c", entity={"shop_id": 1}),
        question("d", entity={"city_id": 1}),
    ]
    assert len(connected(items(*questions))) == 4


def test_without_entities_the_text_decides() -> None:
    same = [Question(id=str(i), question=text) for i, text in enumerate(["What is ＡＢ?", "what is ab", "what is ac"])]
    assert [len(group) for group in connected(items(*same))] == [2, 1]
    assert normalised("？！") == "?!"


def test_fixed_splits_are_kept_and_pull_their_group_along() -> None:
    fixed = [question("a", 1, split="test"), question("b", 2, split="val"), question("c", 3, split="train")]
    free = [question("d", 1), question("e", 1, 9), question("f", 3)]
    result, _ = split(*fixed, *free)
    assert result == {"train": ["c", "f"], "val": ["b"], "test": ["a", "d", "e"]}


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (question("a", 7, split="train"), question("b", 7, split="test"), r"row t 7: train \(row 1\), test \(row 2\)"),
        (question("a", 1, split="val", phrasing="p"), question("b", 2, split="test", phrasing="p"), "phrasing p: val"),
        (question("a", 1, split="train"), Question(id="b", question="问 A", meta={"split": "val"}), "text 问a: train"),
    ],
)
def test_leaks_are_errors(one: Question, other: Question, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_leaks(items(one, other))


def test_a_free_row_between_two_fixed_splits_is_an_error() -> None:
    rows = [question("a", 1, split="train"), question("b", 2, split="test"), question("c", 1, 2)]
    check_leaks(items(*rows))
    with pytest.raises(UserError, match="rows 3 have no meta.split"):
        split(*rows)


@pytest.mark.parametrize(("val", "test"), [(-0.1, 0.1), (0.5, 0.5), (float("nan"), 0.1)])
def test_impossible_shares(val: float, test: float) -> None:
    with pytest.raises(UserError, match="each must be >= 0"):
        split(question("a", 1), val=val, test=test)
