"""Of whom a quote is told: how long a name in a line counts, and in which order columns and things may come."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.reading import CAP
from sql_agent.offline_judge.sections import Cell

PUMP = [
    Cell("灰色粉末，无味。", "洛贝散", "性状"),
    Cell("每袋装3g。", "洛贝散", "规格"),
    Cell("密封，置干燥处。", "洛贝散", "贮藏"),
    Cell("18个月。", "洛贝散", "有效期"),
]
LAMPS = [
    Cell("<p>Voltage: <code>lamp_v</code> is 24 volts; it may rise to 26 volts.</p>", "Aldra", "power"),
    Cell("Wipe with a dry cloth once a month.", "Aldra", "care"),
    Cell("<p>Voltage: <code>lamp_v</code> is 48 volts; it may rise to 53 volts.</p>", "Brontis", "power"),
    Cell("Rinse with warm water every spring.", "Brontis", "care"),
]


def _value(question: str, answer: str, cells: list[Cell], reference: str = "") -> float:
    found = grade(question=question, reference=reference, answer=answer, evidence=cells)
    assert found
    return found.value


@pytest.mark.parametrize(
    "answer",
    [
        "洛贝散的有效期为18个月；密封，置干燥处。",  # the name ends with the sentence of its fact
        "每袋装3g的洛贝散，密封，置干燥处，有效期18个月。",  # columns in another order than asked for
        "根据medicine表的“有效期”字段：18个月。贮藏：密封，置干燥处。",
        "洛贝散 一、贮藏：密封，置干燥处 二、有效期：18个月",
    ],
)
def test_columns_of_one_row_are_told_in_any_order(answer: str) -> None:
    assert _value("洛贝散的贮藏和有效期是什么？", answer, PUMP) >= 0.9


@pytest.mark.parametrize(
    "answer", ["洛贝散的有效期：密封，置干燥处；贮藏：18个月。", "有效期为密封，贮藏为18个月，置干燥处。"]
)
def test_a_fact_right_behind_another_columns_name_is_a_lie(answer: str) -> None:
    assert _value("洛贝散的贮藏和有效期是什么？", answer, PUMP) <= 0.1


def test_an_answer_that_counts_on_the_order_keeps_it() -> None:
    question = "洛贝散的贮藏和有效期分别是什么？"
    assert _value(question, "分别是密封，置干燥处；18个月。", PUMP) >= 0.9
    assert _value(question, "分别是18个月；密封，置干燥处。", PUMP) < 0.9


def test_only_a_name_of_data_is_free_before_its_kind() -> None:
    question, quote = "洛贝散的性状是什么？", "灰色粉末，无味。"
    assert _value(question, f"我查询了drug_info表：{quote}", PUMP) >= 0.9
    for word in ("fake", "wrong", "not", "hoax"):
        assert _value(question, f"以下来自{word}表：{quote}", PUMP) < CAP, word


def test_tags_of_code_are_layout_and_things_may_come_in_any_order() -> None:
    question = "What is the voltage of the Aldra and the Brontis, and how are they cleaned?"
    told = "{}: lamp_v is 24 volts; it may rise to 26 volts. Wipe with a dry cloth once a month.\n\n"
    told += "{}: lamp_v is 48 volts; it may rise to 53 volts. Rinse with warm water every spring."
    assert _value(question, told.format("Aldra", "Brontis"), LAMPS) >= 0.9
    assert _value(question, "\n\n".join(told.format("Aldra", "Brontis").split("\n\n")[::-1]), LAMPS) >= 0.9
    assert _value(question, told.format("Brontis", "Aldra"), LAMPS) <= 0.1


def test_the_clauses_of_a_reference_may_come_in_another_order_but_not_of_another_thing() -> None:
    question = "奥川病和里沙病的表现各有什么特点？"
    cells = [
        Cell("本病慢慢起病，早上手指发硬，持续1小时以上，后期关节变形。", "奥川病", "symptoms"),
        Cell("本病骤然起病，夜里足部剧痛，24小时内达到高峰，2周内缓解。", "里沙病", "symptoms"),
    ]
    first = "奥川病起病缓慢，晨间手指僵硬，超过1小时，晚期关节畸形"
    second = "里沙病起病急骤，夜间脚部剧烈疼痛，一天内最重，两周内好转"
    reference = f"{first}；{second}。"
    assert _value(question, f"{second}；{first}。", cells, reference) >= 0.9
    swapped = reference.replace("奥川病", "#").replace("里沙病", "奥川病").replace("#", "里沙病")
    assert _value(question, swapped, cells, reference) < CAP


def test_an_item_of_a_list_may_have_its_end_as_its_label() -> None:
    cells = [Cell("可见口干、便秘及腹胀等胃肠道反应；头痛、嗜睡等神经系统反应。", "卡里素片", "不良反应")]
    answer = "- **胃肠道反应**：口干、便秘及腹胀等\n- **神经系统反应**：头痛、嗜睡等"
    assert _value("卡里素片有哪些不良反应？", answer, cells) >= 0.9
    assert _value("卡里素片有哪些不良反应？", answer.replace("口干", "呕吐"), cells) < CAP


PROGRAM = """
from sql_agent.offline_judge.exam import make_exam
from sql_agent.offline_judge.sections import Cell
cells = (Cell("在第一疗程开始前已有骨髓抑制者；对本品过敏者。", "奥铂", "禁忌"),)
exam = make_exam("哪些患者禁用奥铂？", "奥铂禁用于对奥铂过敏者、第一疗程开始前已有骨髓抑制者。", cells)
print([word for *_, word in exam.lexicon.read("第1疗程开始前已有骨髓抑制")[0]])
"""


def test_every_process_reads_an_answer_alike() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(4)
    }
    assert len(told) == 1, told


GLAZES = [
    Cell("Kelmar cream", "1", "product"),
    Cell("Brush on twice, an hour apart.", "1", "use"),
    Cell("Kelmar powder", "2", "product"),
    Cell("Open all year for stirring; sieve once before firing.", "2", "use"),
]
SYSTEMS = [
    Cell("<p><b>心血管系统：</b>心悸、房颤。</p><p><b>消化系统：</b>稀便。</p>", "甲亢", "symptoms"),
    Cell("<p><b>心血管系统：</b>心动过缓。</p><p><b>消化系统：</b>厌食、腹胀、便秘。</p>", "甲减", "symptoms"),
]
TOLD_SYSTEMS = "甲亢的心血管表现为心悸、房颤，消化系统表现为稀便；甲减则为心动过缓，消化系统表现为厌食、腹胀、便秘。"


@pytest.mark.parametrize(
    ("question", "reference", "cells", "answer", "least", "most"),
    [
        # Rows that begin alike are called by their last words, and a name ends where the row's does.
        (
            "How are Kelmar cream and Kelmar powder open for use?",
            "",
            GLAZES,
            "Cream: brush on twice, an hour apart.\nPowder: open all year for stirring; sieve once before firing.",
            0.9,
            1,
        ),
        (
            "How are Kelmar cream and Kelmar powder open for use?",
            "",
            GLAZES,
            "Powder: brush on twice, an hour apart.\nCream: open all year for stirring; sieve once before firing.",
            0,
            0.1,
        ),
        # A heading that both cells have is no name of one of them, whatever the reference says under it.
        (
            "甲亢和甲减在心血管系统、消化系统方面的症状有什么不同？",
            TOLD_SYSTEMS,
            SYSTEMS,
            "甲亢：心血管系统：心悸、房颤。消化系统：稀便。\n甲减：心血管系统：心动过缓。消化系统：厌食、腹胀、便秘。",
            0.9,
            1,
        ),
        (
            "甲亢和甲减在心血管系统、消化系统方面的症状有什么不同？",
            TOLD_SYSTEMS,
            SYSTEMS,
            "甲减：心血管系统：心悸、房颤。消化系统：稀便。\n甲亢：心血管系统：心动过缓。消化系统：厌食、腹胀、便秘。",
            0,
            0.1,
        ),
    ],
)
def test_things_are_called_as_their_rows_are(
    question: str, reference: str, cells: list[Cell], answer: str, least: float, most: float
) -> None:
    assert least <= _value(question, answer, cells, reference) <= most
