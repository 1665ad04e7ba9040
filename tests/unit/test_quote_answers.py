"""How cells are written and how answers to them are: each right answer earns what the record does, each lie little."""

from __future__ import annotations

import pytest

from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.offers import cut_offers, without_offers
from sql_agent.offline_judge.sections import Cell

SHEET = "2. CARE\n2.1 Seedlings\nWater daily, keep at 18 °C.\n2.2 Grown plants\nWater weekly, feed in May."
HOSTA = [Cell(SHEET, "0 0", "care")]
WARNINGS = [
    Cell("The ladder is unsuitable for: (a) wet ground; (b) loads above 90 kg; (c) children.", "0 0", "warnings")
]
RASH = [Cell("起病急。第一期表现为高热、头痛；第二期表现为皮疹、脱屑；恢复期乏力可持续数周。", "0 0", "symptoms")]
SYRUP = [Cell("清肺，止咳。用于咳嗽、咽痛、声哑；亦用于哮喘及慢性咽炎。", "0 0", "indications")]
BOILER = [
    Cell("关闭进气阀；打开窗户；报修。", "0 0", "treatment"),
    Cell("阀门老化，密封圈开裂。", "0 0", "causes"),
]
PAIR = [Cell("干咳、头晕、脱发。", "0 0", "adverse_reactions"), Cell("踝部水肿、心悸。", "0 1", "adverse_reactions")]
BALCONY = [Cell("喜阴；阳台上可种；忌积水。", "0 0", "care")]
STAGES = "- 起病急\n- 第一期：高热\n- 第一期：头痛\n- 第二期：皮疹；脱屑\n- 恢复期乏力可持续数周"
REPAIRED = "治疗：\n1. 关闭进气阀\n2. 打开窗户\n3. 报修\n病因：阀门老化，密封圈开裂"
EXCHANGED = "病因：关闭进气阀；打开窗户；报修。治疗：阀门老化，密封圈开裂"
USES = "清肺，止咳；用于咳嗽、咽痛、声哑；哮喘；慢性咽炎。"
TASTE = [Cell("贝舒缓释片", "0 0", "name"), Cell("干咳、口苦。", "0 0", "不良反应")]
FERN = [
    Cell("It likes damp, mossy, shaded walls all year. Water it every 3 days. Never in sunny rooms.", "0 0", "care")
]
FERN_CARE = "Yes, it likes damp, mossy, shaded walls all year. Water it every 3 days."
MOSS = "Does the fern grow on walls?"
TASTES = "贝舒缓释片和康宁缓释片，哪个容易口苦？"
SHADE = "Is it hosta or thyme that needs water weekly?"
SIDE = "贝舒片和康宁胶囊哪个会引起心悸？"


def earned(question: str, cells: list[Cell], answer: str, reference: str = "") -> float:
    found = grade(question=question, reference=reference, answer=answer, evidence=cells)
    assert found
    return found.value


@pytest.mark.parametrize(
    ("question", "cells", "reference", "answer"),
    [
        ("What do grown plants of the blue hosta need?", HOSTA, "", "Grown plants: water weekly, feed in May."),
        ("What care does the blue hosta need?", HOSTA, "", SHEET),
        ("What are the warnings of the ladder?", WARNINGS, "", "- wet ground\n- loads above 90 kg\n- children"),
        ("红斑热第二期的表现是什么？", RASH, "", "第二期：皮疹、脱屑"),
        ("红斑热有哪些症状？", RASH, "", STAGES),
        ("止咳露的适应症是什么？", SYRUP, "", "清肺，止咳；用于咳嗽、咽痛、声哑；哮喘；慢性咽炎"),
        ("锅炉漏气怎么处理，有哪些病因？", BOILER, "", REPAIRED),
        (
            "贝舒片和康宁胶囊的不良反应有什么不同？",
            PAIR,
            "",
            "| 方面 | 贝舒片 | 康宁胶囊 |\n|---|---|---|\n| 方面1 | 干咳、头晕 | 踝部水肿 |\n| 方面2 | 脱发 | 心悸 |",
        ),
        ("## 贝舒片有哪些不良反应？", PAIR[:1], "", "## 一、不良反应\n干咳\n头晕\n脱发"),
        (SIDE, PAIR, "康宁胶囊。", "康宁胶囊会引起心悸。"),
        (SIDE, PAIR, "康宁胶囊。", "根据数据库，康宁胶囊会引起心悸，而贝舒片没有。"),
        ("Which one needs shade, hosta or thyme?", HOSTA, "The hosta.", "The hosta needs shade; the thyme does not."),
        ("能在阳台上种蓝玉簪吗？", BALCONY, "可以，阳台上可种。", "可以，阳台上可种。"),
        ("能在阳台上种蓝玉簪吗？", BALCONY, "可以，阳台上可种。", "喜阴；阳台上可种，所以可以。"),
        (MOSS, FERN, "Yes, on damp ones.", FERN_CARE),
        (TASTES, TASTE, "", "贝舒缓释片。不良反应：干咳、口苦。"),
        (SHADE, HOSTA, "Hosta, grown ones.", f"Hosta. {SHEET}"),
    ],
)  # fmt: skip
def test_right_answers_of_many_forms(question: str, cells: list[Cell], reference: str, answer: str) -> None:
    assert earned(question, cells, answer, reference) >= 0.9


@pytest.mark.parametrize(
    ("question", "cells", "reference", "answer", "most"),
    [
        ("What do grown plants of the blue hosta need?", HOSTA, "", "Seedlings: water daily, keep at 18 °C.", 0.3),
        ("红斑热第二期的表现是什么？", RASH, "", "第二期：高热、头痛", 0.25),
        ("锅炉漏气怎么处理，有哪些病因？", BOILER, "", EXCHANGED, 0.1),
        (SIDE, PAIR, "康宁胶囊。", "贝舒片会引起心悸。", 0.25),
        (SIDE, PAIR, "康宁胶囊。", "康宁胶囊不会引起心悸。", 0.25),
        (SIDE, PAIR, "康宁胶囊。", "康宁胶囊和贝舒片都会引起心悸。", 0.25),
        (SIDE, PAIR, "康宁胶囊。", "可能是康宁胶囊。", 0.25),
        (SIDE, PAIR, "康宁胶囊。", "康宁胶囊会引起心悸和休克。", 0.25),
        ("能在阳台上种蓝玉簪吗？", BALCONY, "可以，阳台上可种。", "不可以，阳台上可种。", 0.25),
        (MOSS, FERN, "Yes, on damp ones.", FERN_CARE.replace("mossy", "sunny"), 0.25),
        (MOSS, FERN, "Yes, on damp ones.", FERN_CARE.replace("3", "9"), 0.25),
        (TASTES, TASTE, "", "康宁缓释片。不良反应：干咳、口苦。", 0.1),
        (SHADE, HOSTA, "Hosta, grown ones.", f"Thyme. {SHEET}", 0.1),
        ("止咳露的适应症是什么？", SYRUP, "", f"{USES}请您告知药师：本品含砒霜。", 0.25),
        ("止咳露的适应症是什么？", SYRUP, "", f"{USES}建议您告诉医生您要加倍服用。", 0.25),
    ],
)  # fmt: skip
def test_wrong_answers_of_these_forms(
    question: str, cells: list[Cell], reference: str, answer: str, most: float
) -> None:
    assert earned(question, cells, answer, reference) <= most


@pytest.mark.parametrize(
    "closing",
    [
        "Please see a specialist before you change anything.",
        "Your doctor can tell you whether this applies to you.",
        "Would you like to see the recipes that use it?",
        "Keep this information at hand for your next appointment.",
        "请勿自行用药或更改治疗方案。",
        "具体情况请以最新版说明书为准。",
        "如果还有不清楚的地方，请随时联系我。",
        "希望这些信息能解答您的疑问。",
        "温馨提示：用药和就诊请听从医生或药师的指导。",
        "Note: please ask your doctor before you change anything.",
        "来源：药品百科",
        "Source: table leaflets",
    ],
)
def test_offers_and_advice_cost_nothing(closing: str) -> None:
    question, text = ("贝舒片有哪些不良反应？", "干咳、头晕、脱发。") if not closing.isascii() else (
        "What are the warnings of the ladder?", WARNINGS[0].text
    )  # fmt: skip
    assert earned(question, [Cell(text, "0 0", "warnings")], f"{text}\n\n{closing}") >= 0.9


@pytest.mark.parametrize(
    "note",
    [
        "（来源：我编的）",
        "（来源：每日5次）",
        "(source: nobody knows)",
        "(source: I made it up)",
        "温馨提示：本品含砒霜。",
        "温馨提示：医生说请每日服5次。",
        "Note: the doctor says that it is deadly.",
        "（来源：高血压患者禁用）",
        "温馨提示：本品含砒霜，请咨询医生。",
        "温馨提示：请让医生给您加倍用药。",
        "提示：药师建议加量。",
        "Note: your doctor should double the dose.",
    ],
)
def test_a_note_that_claims_something_is_read(note: str) -> None:
    question, text = ("贝舒片有哪些不良反应？", "干咳、头晕、脱发。")
    assert earned(question, [Cell(text, "0 0", "adverse_reactions")], f"{text}\n\n{note}") <= 0.25


@pytest.mark.parametrize(
    "closing",
    ["Take it twice a day.", "You should take 5 of them.", "请加倍服用。", "您应该相信这是假的。", "It is all wrong."],
)
def test_what_is_said_of_the_thing_is_no_advice(closing: str) -> None:
    assert without_offers(f"Dry cough. {closing}", lambda _: False) == f"Dry cough. {closing}"
    assert cut_offers(f"Dry cough. {closing}") == (f"Dry cough. {closing}", "")
