"""The offline judge on what is hidden, hedged, taken back or put into a table, and on the honest forms beside it."""

from __future__ import annotations

import time

import pytest

from sql_agent.reference_judge import grade
from sql_agent.reference_stance import without_contrast
from sql_agent.reference_table import flatten
from sql_agent.reference_text import normalise

# question, reference
USES = ("氨氯地平的适应症是什么？", "氨氯地平的适应症：高血压；稳定型心绞痛。")
BANS = ("布洛芬的禁忌是什么？", "布洛芬的禁忌：活动性消化道溃疡；妊娠晚期。")
PACK = ("布洛芬的规格是什么？", "布洛芬的规格：300mg/粒。")
COUNT = ("有多少种药的适应症包括高血压？", "适应症包括高血压的药品共3种。")
BOTH = ("比较甲硝唑和替硝唑的不良反应。", "甲硝唑的不良反应：恶心；口腔金属味。替硝唑的不良反应：头痛；皮疹。")


def value(asked: tuple[str, str], answer: str) -> float:
    found = grade(question=asked[0], reference=asked[1], answer=answer)
    assert found is not None
    return found.value


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        # What is not seen does not change what is read.
        (COUNT, "共1\u200b3种。"),
        (PACK, "300\u20600mg/粒"),
        (USES, "旡论如何都不是高血压，也不是稳定型心绞痛"),
        (USES, "高血压不\u200b适用，稳定型心绞痛不\u200b适用"),
        (USES, "\u200b".join(USES[0])),
        # Words that deny, in several languages.
        (USES, "毋须用于高血压，何须用于稳定型心绞痛"),
        (USES, "It is neither 高血压 nor 稳定型心绞痛."),
        (USES, "高血压ではありません。稳定型心绞痛ではない。"),
        (BANS, "Ibuprofen is safe in 活动性消化道溃疡 and 妊娠晚期."),
        # Words that take back what stands in the same sentence.
        (USES, "“高血压；稳定型心绞痛”，这两条都说反了。"),
        (USES, "高血压。\n稳定型心绞痛。\n这两条都说反了。"),
        (USES, "反面例子：高血压；稳定型心绞痛。"),
        (USES, "有书写“高血压，稳定型心绞痛”，此说早已被推翻。"),
        (USES, "下面没有一项是对的：高血压；稳定型心绞痛。"),
        # Both sides of a question.
        (USES, "也许是高血压，也许不是；或许是稳定型心绞痛，或许不是。"),
        (USES, "不是高血压就是稳定型心绞痛，说不定两者都不是。"),
        # Units and tables.
        (PACK, "300μg/粒"),
        (PACK, "300毫升/粒"),
        (USES, "| 适应症 | 是否记载 |\n|---|---|\n| 高血压 | 否 |\n| 稳定型心绞痛 | 否 |"),
        (USES, "| 不属于适应症的有 |\n|---|\n| 高血压 |\n| 稳定型心绞痛 |"),
        (BOTH, "| 甲硝唑 | 替硝唑 |\n|---|---|\n| 头痛 | 恶心 |\n| 皮疹 | 口腔金属味 |"),
    ],
)
def test_it_earns_nothing(asked: tuple[str, str], answer: str) -> None:
    assert value(asked, answer) == 0


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (USES, "高\u200b血压；稳定\u00ad型心绞痛\ufeff"),
        (PACK, "每粒300mg"),
        (PACK, "300毫克/粒"),
        (COUNT, "共3种，没有第四种。"),
        (COUNT, "是3种，而不是4种。"),
        (USES, "不是低血压，而是高血压和稳定型心绞痛。没有其他适应症。"),
        (USES, "可能用于高血压，也可能用于稳定型心绞痛。"),
        (USES, "经查，氨氯地平的适应症：高血压；稳定型心绞痛。"),
        (USES, "| 序号 | 适应症 |\n|:---:|---|\n| 1 | 高血压 |\n| 2 | 稳定型心绞痛 |"),
        (BANS, "| 人群 | 说明 |\n| --- | --- |\n| 活动性 | 消化道溃疡 |\n| 妊娠晚期 | |"),
        (BOTH, "| 甲硝唑 | 替硝唑 |\n|---|---|\n| 恶心 | 头痛 |\n| 口腔金属味 | 皮疹 |"),
        (BOTH, "| 药品 | 不良反应 |\n|---|---|\n| 甲硝唑 | 恶心、口腔金属味 |\n| 替硝唑 | 头痛、皮疹 |"),
    ],
)
def test_it_costs_nothing(asked: tuple[str, str], answer: str) -> None:
    assert value(asked, answer) >= 0.8


def test_setting_off_hides_no_denial() -> None:
    assert without_contrast("不是甲;而是乙", is_said=lambda text: False) == ";乙"
    assert without_contrast("不是甲;而是乙", is_said=lambda text: text == "甲") == "不是甲;而是乙"
    assert value(USES, "不是高血压，而是低血压。") == 0
    assert value(USES, "高血压；稳定型心绞痛。其实不是高血压，而是低血压。") < value(USES, "稳定型心绞痛。")


def test_tables_as_sentences() -> None:
    table = normalise("前\n| 序号 | 甲 | 乙 |\n|---|---|---|\n| 1 | 一 | 二 |\n| 2 | 三 | |\n后")
    assert flatten(table, subjects=["甲", "乙"], phrases=()) == "前\n甲:一;三。乙:二。\n后"
    assert flatten(table, subjects=["甲"], phrases={"一二"}) == "前\n甲乙:一二;三。\n后"
    assert flatten("a | b\n没有横线", subjects=[], phrases=()) == "a | b\n没有横线"


@pytest.mark.parametrize(
    "piece", ["高血压、", "|a|b|\n|-|-|\n", "不是甲而是", "每粒", "可能", "\u200b", "没有其他", "1毫"]
)
def test_no_form_takes_long(piece: str) -> None:
    started_s = time.process_time()
    value(USES, piece * (8000 // len(piece)))
    assert time.process_time() - started_s < 3
