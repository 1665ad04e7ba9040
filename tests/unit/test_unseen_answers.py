"""What a reader does not see, or cannot read, is no answer; nor is a heap of everything that may be one."""

from __future__ import annotations

import pytest

from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.sections import Cell
from sql_agent.offline_judge.typed import kind_of_cells


def earned(question: str, value: str, answer: str) -> float:
    cells = [Cell(value, "0 0", "value")]
    found = grade(question=question, reference="", answer=answer, evidence=cells, kind=kind_of_cells(question, cells))
    assert found
    return found.value


PEARS, COLOUR = "How many pears did Hollow Farm pick?", "蓝旗是什么颜色？"


@pytest.mark.parametrize(
    ("question", "value", "answer"),
    [
        (PEARS, "31", "~~31~~"),
        (PEARS, "31", "<del>31</del> pears."),
        (PEARS, "31", 'Hollow Farm picked <span style="display:none">31</span> pears.'),
        (PEARS, "31", "<p hidden>31</p>"),
        (PEARS, "31", "❌ 31"),
        (PEARS, "31", "The number is ≠ 31."),
        (PEARS, "31", "The number is > 31."),
        (PEARS, "31", "31. La respuesta correcta seguramente sería otra cantidad totalmente distinta."),
        (PEARS, "31", "Hollow Farm picked 31 pears. Diese Angabe stimmt leider überhaupt nicht."),
        (PEARS, "31", "(31 pears) (27 pears) (45 pears) (62 pears)"),
        (COLOUR, "绿色", "红色 绿色 黄色 黑色"),
    ],
)
def test_no_answer(question: str, value: str, answer: str) -> None:
    assert earned(question, value, answer) <= 0.1


@pytest.mark.parametrize(
    ("question", "value", "answer"),
    [
        (PEARS, "31", "Hollow Farm picked **31** pears."),
        (PEARS, "31", "<b>31</b> pears were picked by Hollow Farm."),
        (PEARS, "31", "Hollow Farm picked 31 pears; see `harvest_log` for the jalapeño ones."),
        ("Which bakery sells the most rolls?", "Pâtisserie des Échelles", "It is Pâtisserie des Échelles."),
        ("¿Cuántas peras recogió la granja?", "31", "La granja recogió 31 peras."),
        ("杨梅酒的酒精度是多少？", "12.5%", "酒精度为12.5%vol。"),
    ],
)
def test_an_answer(question: str, value: str, answer: str) -> None:
    assert earned(question, value, answer) >= 0.9
