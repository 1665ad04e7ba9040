"""Answers that quote cells of leaflets, manuals, contracts and catalogues, written one by one, and what they earn.

`quoted_answers.jsonl` has 524 questions on rows of which not every cell is asked for, each with five honest answers and
six dishonest ones. A, B, F, H, J and L were read to choose rules, C and D in part; of G, I, K and M only counts were
looked at, of E but one answer. D and E tell whole rows of six columns or more, asked in words that are not the
columns'; L and M compare and ask for parts of long cells, and have a reference in prose.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.reading import CAP
from sql_agent.offline_judge.sections import Cell

LINES = (Path(__file__).parents[1] / "judge_exam" / "quoted_answers.jsonl").read_text(encoding="utf-8").splitlines()
ASKS = [json.loads(line) for line in LINES]
HALVES = "ABCDEFGHIJKLM"
HONEST = dict(zip(HALVES, (0.78, 0.79, 0.64, 0.69, 0.44, 0.52, 0.58, 0.61, 0.61, 0.5, 0.56, 0.55, 0.35), strict=True))
UNPAID = (0.98, 0.97, 0.97, 0.96, 0.94, 0.95, 0.96, 0.96, 0.97, 0.96, 0.97, 0.98, 0.97)
DISHONEST = dict(zip(HALVES, UNPAID, strict=True))


def values(half: str, answers: str) -> list[float]:
    """What each answer of a half earns, `honest` or `dishonest` ones."""
    earned = list[float]()
    for ask in ASKS:
        cells = tuple(Cell(text, row, column) for row, column, text in ask["evidence"])
        for answer in ask[answers] if ask["half"] == half else ():
            found = grade(question=ask["question"], reference=ask["reference"], answer=answer, evidence=cells)
            earned.append(found.value if found else 0.0)
    return earned


@pytest.mark.long
@pytest.mark.parametrize(("half", "share"), HONEST.items())
def test_what_is_quoted_in_anybodys_words_pays(half: str, share: float) -> None:
    earned = values(half, "honest")
    assert sum(value >= 0.9 for value in earned) >= share * len(earned)


@pytest.mark.long
@pytest.mark.parametrize(("half", "share"), DISHONEST.items())
def test_what_is_exchanged_changed_added_or_taken_back_does_not(half: str, share: float) -> None:
    earned = values(half, "dishonest")
    assert sum(value <= CAP for value in earned) >= share * len(earned)
