"""Which of two: the question in many forms, and answers that choose, compare, doubt or name both."""

import pytest

from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.sections import Cell

BOATS = [
    Cell("Marlin 24 (sloop)", row="0 0", column="boat"),
    Cell("The hull is laminated oak. It draws 1.2 m of water.", row="0 0", column="notes"),
    Cell("Petrel", row="0 1", column="boat"),
    Cell("The hull is riveted steel. It draws 0.9 m of water.", row="0 1", column="notes"),
]
KILNS = [
    Cell("青石窑（3号）", row="0 0", column="名称"),
    Cell("烧制温度为1280度。燃料为松木。", row="0 0", column="说明"),
    Cell("柏林窑", row="0 1", column="名称"),
    Cell("烧制温度为1150度。燃料为天然气。", row="0 1", column="说明"),
]
ENGLISH = [
    "Which has a steel hull, the Marlin 24 or the Petrel?",
    "Of the Marlin 24 and the Petrel, which has a steel hull?",
    "Does the Marlin 24 or the Petrel have a steel hull?",
    "Is it the Marlin 24 or the Petrel that has a steel hull?",
    "What has a steel hull, the Marlin 24 or the Petrel?",
    "Which one, Marlin 24 or Petrel, has a steel hull, and how deep does it draw?",
]
CHINESE = [
    "青石窑和柏林窑，哪个烧天然气？",
    "烧天然气的是青石窑还是柏林窑？",
    "青石窑、柏林窑之中，谁烧天然气？",
    "烧天然气的是青石窑，还是柏林窑？",
]


def value(question: str, answer: str, reference: str, cells: list[Cell]) -> float:
    verdict = grade(question=question, reference=reference, answer=answer, evidence=cells)
    assert verdict is not None
    return verdict.value


@pytest.mark.parametrize("question", ENGLISH)
def test_the_chosen_one_is_right_and_the_other_wrong_in_english(question: str) -> None:
    reference = "The Petrel, hers is made of steel."
    for answer in (
        "It is the Petrel. Its notes state: The hull is riveted steel.",
        'The notes of the Petrel mention "The hull is riveted steel", so the answer is the Petrel.',
        "**Petrel**\n\n- The hull is riveted steel.",
        "The Petrel. The hull is riveted steel. The notes of the Marlin 24 do not mention this.",
    ):
        assert value(question, answer, reference, BOATS) >= 0.9, answer
    for answer in (
        "It is the Marlin 24. Its notes state: The hull is riveted steel.",
        "**Marlin 24 (sloop)**\n\n- The hull is riveted steel.",
        "It might be the Petrel or the Marlin 24.",
        "The Petrel and the Marlin 24 have a steel hull.",
    ):
        assert value(question, answer, reference, BOATS) <= 0.25, answer


@pytest.mark.parametrize("question", CHINESE)
def test_the_chosen_one_is_right_and_the_other_wrong_in_chinese(question: str) -> None:
    reference = "柏林窑，它用天然气。"
    for answer in (
        "根据查询结果，答案是柏林窑。其说明部分写明：燃料为天然气。",
        "柏林窑：燃料为天然气。",
        "是柏林窑。燃料为天然气。而青石窑的说明中没有相应记载。",
    ):
        assert value(question, answer, reference, KILNS) >= 0.9, answer
    for answer in (
        "根据查询结果，答案是青石窑。其说明部分写明：燃料为天然气。",
        "青石窑（3号）：燃料为天然气。",
        "可能是柏林窑。",
    ):
        assert value(question, answer, reference, KILNS) <= 0.25, answer


def test_a_reference_that_tells_of_both_chooses_what_it_affirms() -> None:
    question, reference = "青石窑和柏林窑哪个烧天然气？", "柏林窑烧天然气，青石窑不烧天然气。"
    assert value(question, "是柏林窑。燃料为天然气。", reference, KILNS) >= 0.9
    assert value(question, "是青石窑。燃料为天然气。", reference, KILNS) <= 0.25


@pytest.mark.parametrize(
    ("question", "names", "right", "wrong"),
    [
        (
            "Which boat draws less, the Petrel or the Marlin 24?",
            ("Petrel", "Marlin 24"),
            "The Petrel draws less than the Marlin 24.",
            ["The Marlin 24 draws less than the Petrel.", "than Petrel Marlin 24", "than Petrel, than Marlin 24"],
        ),
        (
            "柏林窑和青石窑哪个温度更低？",
            ("柏林窑", "青石窑"),
            "柏林窑的温度比青石窑低。",
            ["青石窑的温度比柏林窑低。", "相比柏林窑、青石窑"],
        ),
    ],
)
def test_what_stands_behind_than_is_not_chosen(
    question: str, names: tuple[str, str], right: str, wrong: list[str]
) -> None:
    cells = [Cell(name, row=f"0 {n}", column="name") for n, name in enumerate(names)]
    assert value(question, right, names[0], cells) >= 0.9
    assert max(value(question, answer, names[0], cells) for answer in wrong) <= 0.25


@pytest.mark.parametrize("answer", [".", "-", "…", "！", "/"])
def test_a_sign_is_no_empty_reference(answer: str) -> None:
    verdict = grade(question="How is the Petrel built?", reference="", answer=answer, evidence=BOATS[2:])
    assert verdict is not None and verdict.value == 0


@pytest.mark.parametrize(
    ("question", "reference", "cells", "names"),
    [
        *((one, "The Petrel, hers is made of steel.", BOATS, ("Petrel", "Marlin 24")) for one in ENGLISH),
        *((one, "柏林窑，它用天然气。", KILNS, ("柏林窑", "青石窑")) for one in CHINESE),
    ],
)
def test_the_cells_of_both_behind_the_wrong_one_choose_it(
    question: str, reference: str, cells: list[Cell], names: tuple[str, str]
) -> None:
    every, right = "\n".join(cell.text for cell in cells), "\n".join(cell.text for cell in cells[2:])
    assert value(question, right, reference, cells) >= 0.9
    assert value(question, every, reference, cells) <= 0.1
    assert value(question, f"{names[1]}\n\n{every}", reference, cells) <= 0.1


WORMS = [
    Cell("20～40天，平均25天", row="环尾虫病", column="incubation"),
    Cell("经生水传播", row="环尾虫病", column="transmission"),
    Cell("60～90天，平均70天", row="裂头虫病", column="incubation"),
    Cell("经蚊虫叮咬传播", row="裂头虫病", column="transmission"),
]


def test_things_named_by_their_rows_alone_are_chosen_of() -> None:
    question, reference = (
        "环尾虫病和裂头虫病哪个潜伏期更长？各多久？",
        "裂头虫病的潜伏期更长，为60～90天；环尾虫病为20～40天。",
    )
    both = "环尾虫病20～40天，平均25天；裂头虫病60～90天，平均70天。"
    assert value(question, f"裂头虫病潜伏期更长。{both}", reference, WORMS) >= 0.9
    assert value(question, f"环尾虫病潜伏期更长。{both}", reference, WORMS) <= 0.1
