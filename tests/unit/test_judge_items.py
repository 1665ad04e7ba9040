"""Judged answers: what a file may hold, what the bundled set promises, and rewritings that keep a label."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import UserError
from sql_agent.data.build import build_bundled
from sql_agent.data.dataset import load_questions
from sql_agent.judge_audit.items import (
    AGAIN,
    BUNDLED_ITEMS,
    FRAME,
    LAYOUT,
    ORDER,
    REWRITINGS,
    WORDS,
    JudgedItem,
    load_items,
    rewrite,
)

ITEM = {
    "question": "问？",
    "reference": "甲；乙",
    "evidence": ["甲；乙"],
    "answer": "甲",
    "label": 0.67,
    "kind": "partial",
}


def write(path: Path, *lines: Any) -> Path:
    path.write_bytes(b"".join((x if isinstance(x, bytes) else json.dumps(x).encode()) + b"\n" for x in lines))
    return path


def item(**changes: Any) -> JudgedItem:
    return JudgedItem.model_validate(ITEM | changes)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    objects = [{"source_table": "t", "row_id": 1, "field": "f", "quote": "甲"}]
    path = write(
        tmp_path / "items.jsonl",
        ITEM | {"note": "ignored", "label": 1},
        b"",
        ITEM | {"id": 7, "evidence": "甲；乙"},
        ITEM | {"evidence": objects},
        ITEM | {"evidence": None, "answer": ""},
    )
    items = load_items(path)
    assert [i.id for i in items] == ["1", "7", "4", "5"]
    assert [i.evidence for i in items] == [["甲；乙"], ["甲；乙"], ["甲"], []]
    assert items[0].label == 1 and not items[0].is_attack
    assert item(kind="Injection").is_attack and not item(kind="Good").is_attack


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not UTF-8"),
        (b"[1]", "an object is needed"),
        (b"[" * 100_000, "not JSON that can be read"),
        (b'{"question": "\\ud800"}', "lone surrogate"),
        ({k: v for k, v in ITEM.items() if k != "answer"}, "answer: Field required"),
        (ITEM | {"label": 1.5}, "label"),
        (ITEM | {"label": "1.0"}, "label"),
        (ITEM | {"label": None}, "label"),
        (b'{"question": "q", "reference": "r", "answer": "a", "kind": "k", "label": NaN}', "label"),
        (ITEM | {"question": ""}, "question"),
        (ITEM | {"kind": ""}, "kind"),
        (ITEM | {"evidence": {"a": 1}}, "evidence"),
        (ITEM | {"evidence": [1]}, "evidence"),
        (ITEM | {"answer": None}, "answer"),
        (ITEM | {"reference": " ", "evidence": []}, "nothing to judge by"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: Any, reason: str) -> None:
    path = write(tmp_path / "items.jsonl", ITEM, line, ITEM)
    with pytest.raises(UserError, match=rf"items.jsonl: bad lines \(1\)[^\n]*\n  line 2: .*{reason}"):
        load_items(path)


def test_a_file_without_items(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path, write(tmp_path / "empty.jsonl", b"", b"  ")):
        with pytest.raises(UserError, match=str(path)):
            load_items(path)
    with pytest.raises(UserError, match="and 20 more"):
        load_items(write(tmp_path / "bad.jsonl", *[b"{"] * 30))


# The bundled set


def test_the_bundled_set_is_large_and_covers_the_attacks() -> None:
    items = load_items(BUNDLED_ITEMS)
    kinds = Counter(i.kind for i in items)
    assert len(items) >= 120 and len({i.id for i in items}) == len(items)
    assert sum(i.is_attack for i in items) >= 80 and sum(not i.is_attack for i in items) >= 60
    wanted = [
        "injection_zh",
        "injection_en",
        "forged_verdict",
        "master_key",
        "reference_leak",
        "length_bait",
        "style_bait",
        "invention",
    ]
    assert all(kinds[kind] >= 4 for kind in [*wanted, "good", "partial", "wrong", "paraphrase", "reordered"])


def test_labels_follow_the_written_rule() -> None:
    """The harmonic mean of facts stated / facts and facts stated / (facts stated + unsupported claims)."""
    for line in BUNDLED_ITEMS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        stated, facts, unsupported = row["stated"], row["facts"], row["unsupported"]
        assert 0 <= stated <= facts and unsupported >= 0
        label = 2 * stated / (facts + stated + unsupported) if stated else 0.0
        assert row["label"] == pytest.approx(label, abs=0.006), row["id"]


@pytest.mark.long
def test_questions_references_and_evidence_are_the_bundled_datas(tmp_path: Path) -> None:
    assert build_bundled(tmp_path) is not None
    questions = {q.id: q for q in load_questions(tmp_path / "qa_dataset.jsonl")}
    for line in BUNDLED_ITEMS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        question = questions[row["qid"]]
        assert (row["question"], row["reference"]) == (question.question, question.answer), row["id"]
        assert row["task_type"] == question.task_type, row["id"]
        assert row["evidence"] == [e.quote for e in question.evidence], row["id"]


# Rewritings


def test_rewritings() -> None:
    two = item(
        reference="甲的禁忌：一；二；三。乙的禁忌：四。\n丙", evidence=["一；二；三", "四"], answer="慎用；每日1次"
    )
    ordered = rewrite(two, ORDER)
    assert ordered and ordered.reference == "甲的禁忌：三；二；一。乙的禁忌：四。\n丙"
    assert ordered.evidence == ["四", "三；二；一"] and ordered.answer == two.answer
    framed, reworded = rewrite(two, FRAME), rewrite(two, WORDS)
    assert framed and framed.answer == "您好！根据查询结果，慎用，\n每日1次\n希望对您有帮助，谢谢！"
    assert reworded and reworded.answer == "谨慎使用；每天1次"
    again, listed = rewrite(two, AGAIN), rewrite(two, LAYOUT)
    assert again and again.question == two.question + " " and again.answer == two.answer
    assert listed and listed.answer == "- 慎用\n- 每日1次"
    assert rewrite(item(answer="甲"), LAYOUT) is None and rewrite(item(answer="|甲；乙|\n|--|"), LAYOUT) is None
    english = rewrite(item(answer="hypertension"), FRAME)
    assert english and english.answer.startswith("Hello!")
    assert rewrite(item(answer="甲"), WORDS) is None
    assert rewrite(item(answer="："), FRAME) is None
    assert rewrite(item(reference="甲", evidence=["甲"]), ORDER) is None


@given(st.text(alphabet="甲乙；。：\n ;:", max_size=30), st.lists(st.text(alphabet="甲乙；。", max_size=8), max_size=3))
def test_reordering_keeps_every_character_of_the_facts(reference: str, evidence: list[str]) -> None:
    before = item(reference=reference or "甲", evidence=evidence)
    after = rewrite(before, ORDER) or before
    assert Counter(after.reference.replace(" ", "").replace(";", "；")) == Counter(
        before.reference.replace(" ", "").replace(";", "；")
    )
    assert sorted(map(len, after.evidence)) == sorted(map(len, before.evidence))


@given(st.text(max_size=40))
def test_any_answer_can_be_rewritten(answer: str) -> None:
    for how in REWRITINGS:
        new = rewrite(item(answer=answer), how)
        assert new is None or new.label == ITEM["label"]
