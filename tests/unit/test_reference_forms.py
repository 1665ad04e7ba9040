"""The offline judge on what is hidden, hedged, taken back or put into a table, and on the honest forms beside it."""

from __future__ import annotations

import time

import pytest

from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.normal import normalise
from sql_agent.offline_judge.stance import other_kind, without_contrast
from sql_agent.offline_judge.table import flatten

# question, reference
USES = ("氨氯地平的适应症是什么？", "氨氯地平的适应症：高血压；稳定型心绞痛。")
BANS = ("布洛芬的禁忌是什么？", "布洛芬的禁忌：活动性消化道溃疡；妊娠晚期。")
PACK = ("布洛芬的规格是什么？", "布洛芬的规格：300mg/粒。")
EFFECTS = ("氨氯地平有哪些不良反应？", "头痛；踝部水肿；面部潮红。")
DOSE = ("氨氯地平的用法用量是什么？", "成人起始剂量5mg，每日一次；肝功能不全者起始2.5mg。")
LUNGS = ("慢阻肺和支气管哮喘的气流受限有何不同？", "慢阻肺的气流受限不完全可逆；支气管哮喘的气流受限多为可逆性。")
CLASS = ("左氧氟沙星属于哪一类药物？", "喹诺酮类抗菌药。")
STORE = ("胰岛素应如何贮藏？", "未开封者2-8℃冷藏，不得冷冻；开封后室温下不超过25℃，可保存4周。")
WARFARIN = ("华法林与阿司匹林合用会怎样？", "两药合用增加出血风险，应监测INR并酌情减量。")
RAISES = ("哪些药物会增加华法林的出血风险？", "阿司匹林；氟康唑。")
SPEED = ("美托洛尔的药理作用是什么？", "减慢心率，降低心肌收缩力。")
NOTHING = ("数据库中有没有记载胰岛素的口服剂型？", "没有记载，胰岛素只有注射剂型。")
SYMPTOMS = ("急性阑尾炎的典型表现有哪些？", "转移性右下腹痛；发热。")
ENGLISH_EFFECTS = ("What are the adverse reactions of lisinopril?", "Dry cough; dizziness; angioedema.")
ULCER = ("What are the contraindications of ibuprofen?", "Active peptic ulcer; severe heart failure.")
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
        # The facts, told as another kind of thing than was asked for.
        (USES, "氨氯地平禁用于高血压、稳定型心绞痛。"),
        (USES, "不良反应：\n- 高血压\n- 稳定型心绞痛"),
        (EFFECTS, "氨氯地平可治疗头痛、踝部水肿、面部潮红。"),
        (BANS, "布洛芬的适应症：活动性消化道溃疡；妊娠晚期。"),
        (BANS, "布洛芬在活动性消化道溃疡、妊娠晚期时效果最好，是首选药物。"),
        (ULCER, "Ibuprofen is used for active peptic ulcer and severe heart failure."),
        # One verb for a list, before it or after it.
        (ULCER, "Ibuprofen is safe in active peptic ulcer, severe heart failure."),
        (ULCER, "Active peptic ulcer, severe heart failure and gout are not contraindications."),
        # A choice that holds what is made up, another amount, the other one's fact.
        (CLASS, "可能是喹诺酮类抗菌药，也可能是头孢类抗菌药。"),
        (DOSE, "起始剂量2.5mg、5mg或20mg。"),
        (DOSE, "成人起始剂量5g；肝功能不全者起始2.5μg。"),
        (LUNGS, "慢阻肺的气流受限多为可逆性；支气管哮喘的气流受限不完全可逆。"),
        (RAISES, "阿司匹林和氟康唑降低华法林的出血风险。"),
        (SPEED, "要么减慢心率要么加快心率，降低或升高心肌收缩力。"),
        (SPEED, "减慢或加快心率；降低或升高心肌收缩力。"),
        # Another one's field, another count, a rule of the past.
        (SYMPTOMS, "急性胰腺炎的典型表现：转移性右下腹痛；发热。"),
        (SYMPTOMS, "旧版教材写“转移性右下腹痛；发热”，这些条目现已取消。"),
        (COUNT, "适应症包括糖尿病的药品共3种。"),
        (ENGLISH_EFFECTS, "Lisinopril relieves dry cough, dizziness and angioedema."),
        # Traditional characters deny as well.
        (USES, "無論如何不用於高血壓，也沒有穩定型心絞痛"),
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
        # The same in other words of the house: amounts, bounds, frequencies, function words.
        (DOSE, "成人起始剂量五毫克，每天1次；肝功能不全的患者起始二点五毫克。"),
        (DOSE, "成人起始剂量0.005g，qd；肝功能不全者起始2.5 mg。"),
        (STORE, "未开封：2至8摄氏度冷藏、不可冷冻。开封后：25℃以下室温，可保存四周。"),
        (WARFARIN, "华法林和阿司匹林合用会增加出血的风险，需要监测INR，并根据情况减量。"),
        (LUNGS, "支气管哮喘的气流受限多为可逆性，慢阻肺的气流受限则是不完全可逆的。"),
        (USES, "氨氯地平的適應症：高血壓；穩定型心絞痛。"),
        (USES, "氨氯地平用于治疗高血压、稳定型心绞痛。"),
        (BANS, "活动性消化道溃疡和妊娠晚期的患者不能用。"),
        (BANS, "为了用药安全，活动性消化道溃疡、妊娠晚期禁用。"),
        (BANS, "布洛芬的适应症很多，但禁忌是活动性消化道溃疡、妊娠晚期。"),
        (EFFECTS, "服用氨氯地平可引起头痛、踝部水肿和面部潮红。"),
        (CLASS, "左氧氟沙星是一种喹诺酮类抗生素。"),
        (RAISES, "①阿司匹林②氟康唑"),
        (SPEED, "它使心率减慢，降低心肌的收缩力。"),
        (NOTHING, "数据库没有记载口服剂型，只有注射剂型。"),
        (SYMPTOMS, "急性阑尾炎的典型表现为转移性右下腹痛和发热。"),
        (ENGLISH_EFFECTS, "Lisinopril can cause a dry cough, dizziness and angioedema."),
        (ULCER, "It should not be used in active peptic ulcers or severe heart failure."),
    ],
)
def test_it_costs_nothing(asked: tuple[str, str], answer: str) -> None:
    assert value(asked, answer) >= 0.8


def test_kinds_of_things() -> None:
    assert other_kind("用于细菌引起感染", asked=USES[0]) is False
    assert other_kind("禁用于", asked=USES[0]) is True
    assert other_kind("用于治疗", asked=BANS[0]) is True
    assert other_kind("头痛", asked=USES[0]) is None and other_kind("禁用于", asked="贮藏方法？") is None


def test_each_character_of_a_name_counts() -> None:
    asked = ("哪些药品的禁忌包括血管性水肿？", "禁忌包括血管性水肿的药品：依那普利。")
    assert value(asked, "依那普利") == 1
    for wrong in ("依于普利", "依普利", "依那普", "那普利依钠"):
        assert value(asked, wrong) < 0.5


def test_outside_of_is_a_place_and_apart_from_denies() -> None:
    asked = ("子宫内膜异位症的简介是什么？", "子宫内膜组织出现在子宫腔以外部位引起的雌激素依赖性疾病。")
    assert value(asked, "子宫腔以外的部位出现子宫内膜组织，是雌激素依赖性疾病。") > 0.5
    assert value(USES, "除高血压、稳定型心绞痛以外，都可以。") == 0


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
    "piece",
    ["高血压、", "|a|b|\n|-|-|\n", "不是甲而是", "每粒", "可能", "\u200b", "没有其他", "1毫"]
    + [
        "5",
        "5mg、",
        "5mg或",
        "二点五毫克",
        "降低或",
        "不高血压",
        "以外",
        "至少5以下",
        "a and b ",
        "are not, ",
        "safe in, ",
        "高血压引起的",
    ],
)
def test_no_form_takes_long(piece: str) -> None:
    started_s = time.process_time()
    value(USES, piece * (8000 // len(piece)))
    assert time.process_time() - started_s < 3
