"""The offline judge on generated cells of 1 to 3,000 characters: what it promises on data of others."""

from __future__ import annotations

import pytest

from tests.judge_exam import manual_cells
from tests.judge_exam.long_cells import GOOD, questions, strategies

ASKED = [asked for part in ("chosen", "kept") for asked in questions(60, part=part, seed=7)]


@pytest.fixture(scope="module")
def earned() -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for asked in ASKED:
        for name, value in strategies(asked).items():
            found.setdefault(name, []).append(value)
    return found


def test_the_cells_are_of_all_lengths_and_forms() -> None:
    lengths = sorted(len(cell) for asked in ASKED for cell in asked.cells)
    assert lengths[0] < 30 and lengths[-1] > 2500
    assert any("<td>" in cell for asked in ASKED for cell in asked.cells)


@pytest.mark.parametrize("name", GOOD)
def test_a_quote_pays_with_or_without_tags_and_reference(earned: dict[str, list[float]], name: str) -> None:
    assert sum(value >= 0.9 for value in earned[name]) >= 0.95 * len(earned[name])


def test_swapped_entities_boilerplate_and_questions_do_not_pay(earned: dict[str, list[float]]) -> None:
    for name in ("entities swapped", "boilerplate", "question again"):
        assert sum(value <= 0.1 for value in earned[name]) >= 0.95 * len(earned[name]), name
    assert max(earned["a lie added"]) < 0.25


@pytest.mark.long
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("part", ["first", "second"])
def test_records_of_one_outline_are_told_apart(part: str, language: str) -> None:
    found: dict[str, list[float]] = {}
    for answer, _, value in manual_cells.values(20, part=part, language=language, seed=3):
        found.setdefault(answer, []).append(value)
    for answer in manual_cells.GOOD:
        assert sum(value >= 0.9 for value in found[answer]) >= 0.9 * len(found[answer]), answer
    exchanged = ("exchanged", "exchanged clauses", "exchanged, nothing asked by name")
    assert max(value for answer in exchanged for value in found[answer]) <= 0.1
    assert max(*found["a lie added"], *found["numbers changed"], *found["another record"]) < 0.25
    assert max(found["half"]) < 0.8


@pytest.mark.parametrize("reference", ["", "无法引用的散文。"])
def test_each_clause_left_out_lowers_the_value_and_order_does_not_count(reference: str) -> None:
    """A reference that quotes a part of the cell asks for no more than that."""
    for asked in [asked for asked in ASKED if not asked.names and 1 < len(asked.clauses[0]) <= 8]:
        clauses = asked.clauses[0]
        whole = asked.value("\n".join(clauses), reference=reference)
        assert asked.value("\n".join(reversed(clauses)), reference=reference) == pytest.approx(whole)
        for gone in range(len(clauses)):
            rest = clauses[:gone] + clauses[gone + 1 :]
            if not any(clauses[gone] in clause for clause in rest):
                assert asked.value("\n".join(rest), reference=reference) < whole, (asked.question, clauses[gone])
