"""Facts told in two halves, a label and the rest; and the columns that parts of a question ask for."""

from __future__ import annotations

import random

import pytest

from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.reading import CAP
from sql_agent.offline_judge.sections import Cell

TREES = ("red alder", "white elm")
PLANTS = [
    Cell("Height 14 m. Flowering June to July. Yellow catkins. Likes wet ground.", "red alder", "looks"),
    Cell("Height 22 m. Flowering March to April. Green catkins. Likes dry ground.", "white elm", "looks"),
]
TOLD = {
    "red alder": ("14 m", "June to July", "Yellow", "wet ground"),
    "white elm": ("22 m", "March to April", "Green", "dry ground"),
}
HEADS = ("Height", "Flowering", "Catkins", "Likes")


def _paid(told: dict[str, tuple[str, ...]], layout: str) -> float:
    if layout == "columns":
        rows = [["", *told], ["---"] * 3, *([head, *cells] for head, *cells in zip(HEADS, *told.values(), strict=True))]
        answer = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    elif layout == "rows":
        rows = [["Tree", *HEADS], ["---"] * 5, *([name, *cells] for name, cells in told.items())]
        answer = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    else:
        lists = ((name, *(f"- {h}: {cell}" for h, cell in zip(HEADS, told[name], strict=True))) for name in told)
        answer = "\n\n".join("\n".join(lines) for lines in lists)
    question = "How do the looks of the red alder and the white elm differ?"
    found = grade(question=question, reference="", answer=answer, evidence=PLANTS, kind="text")
    assert found
    return found.value


@pytest.mark.parametrize("layout", ["columns", "rows", "lists"])
def test_a_label_and_its_value_tell_a_fact(layout: str) -> None:
    assert _paid(TOLD, layout) >= 0.9


@pytest.mark.parametrize("layout", ["columns", "rows", "lists"])
@pytest.mark.parametrize("seed", range(8))
def test_a_value_of_another_thing_or_label_tells_none(layout: str, seed: int) -> None:
    draw = random.Random(seed)
    at = draw.randrange(4)
    one, other = (list(TOLD[name]) for name in TREES)
    if seed % 2:
        one[at], other[at] = other[at], one[at]
    else:
        to = draw.choice([n for n in range(4) if n != at])
        one[at], one[to] = one[to], one[at]
    assert _paid({"red alder": tuple(one), "white elm": tuple(other)}, layout) < CAP


POLICY = [
    Cell("Eight weeks' notice to the manager. Sixteen weeks at full pay.", "P-4", "parental_leave"),
    Cell("Five unused days go into the next year. The rest lapses in March.", "P-4", "carry_over"),
    Cell("A certificate is due after three days.", "P-4", "sick_leave"),
    Cell("General terms", "P-4", "title"),
]
MUSEUM = [
    Cell("九点至十七点半开放，周一闭馆", "云溪馆", "开放时间"),
    Cell("成人三十元，学生免票", "云溪馆", "票务信息"),
    Cell("地铁二号线到云溪站，步行六百米", "云溪馆", "交通指南"),
    Cell("青铜器四百件", "云溪馆", "藏品概况"),
]


@pytest.mark.parametrize(
    ("question", "reference", "cells", "asked"),
    [
        ("I expect a child and have days left. What do I get as parental leave?", "", POLICY, [0]),
        ("What about parental leave, and what happens with my unused days at the end of the year?", "", POLICY, [0, 1]),
        ("When do I need a certificate for sick leave?", "", POLICY, [2]),
        ("带老人去云溪馆，几点开门、要不要买票？", "", MUSEUM, [0, 1]),
        ("云溪馆有哪些藏品？", "", MUSEUM, [3]),
        (
            "想去云溪馆，请讲讲。",
            "九点开放到十七点半，周一闭馆。坐地铁二号线到云溪站，步行六百米。",
            MUSEUM,
            [0, 2],
        ),
    ],
)
def test_each_part_of_a_question_asks_for_its_columns(
    question: str, reference: str, cells: list[Cell], asked: list[int]
) -> None:
    def paid(told: list[int]) -> float:
        answer = "\n".join(cells[n].text for n in told)
        found = grade(question=question, reference=reference, answer=answer, evidence=cells, kind="text")
        assert found
        return found.value

    assert paid(asked) >= 0.9
    for n in asked:
        assert paid([one for one in asked if one != n] or [3 if n != 3 else 0]) < 0.9


def test_labels_of_one_answer_do_not_reach_the_next() -> None:
    labels = "\n".join(f"Height {n}: 14 m" for n in range(300))
    question, cells = "How does the red alder look?", PLANTS[:1]
    told = "Height: 14 m\nFlowering: June to July\nCatkins: yellow\nLikes: wet ground"

    def paid(answer: str) -> float:
        found = grade(question=question, reference="", answer=answer, evidence=cells, kind="text")
        assert found
        return found.value

    assert paid(labels) < CAP
    assert paid(told) >= 0.9


@pytest.mark.parametrize("ragged", ["|", "| Tree |", "| red alder | 14 m |", "| a | b | c | d | e | f | g |"])
def test_rows_of_any_length_are_read(ragged: str) -> None:
    head = "| Tree | Height | Flowering | Catkins | Likes |\n| --- | --- | --- | --- | --- |"
    full = "| red alder | 14 m | June to July | Yellow | wet ground |"
    for answer in (f"{head}\n{ragged}\n{full}", f"{head}\n{full}\n{ragged}", f"{ragged}\n{full}"):
        assert grade(
            question="How does the red alder look?", reference="", answer=answer, evidence=PLANTS[:1], kind="text"
        )
