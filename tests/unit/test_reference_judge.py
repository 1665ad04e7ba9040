"""The offline judge on answers as people, tiny models and cheaters write them."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sql_agent.offline_judge.judge import ReferenceVerdict, grade, is_copy
from sql_agent.offline_judge.normal import normalise
from sql_agent.offline_judge.text import tokens

QUESTION = "氨氯地平的适应症是什么？"
FACTS = ["高血压", "稳定型心绞痛", "变异型心绞痛"]
REFERENCE = "氨氯地平的适应症：高血压；稳定型心绞痛；变异型心绞痛。"


def verdict(answer: str, question: str = QUESTION, reference: str = REFERENCE, *evidence: str) -> ReferenceVerdict:
    found = grade(question=question, reference=reference, answer=answer, evidence=evidence)
    assert found is not None and 0 <= found.value <= 1
    return found


def value(answer: str, question: str = QUESTION, reference: str = REFERENCE, *evidence: str) -> float:
    return verdict(answer, question, reference, *evidence).value


@pytest.mark.parametrize(
    "answer",
    [
        REFERENCE,
        "变异型心绞痛，高血压、稳定型心绞痛",
        "高血压和稳定型心绞痛，以及变异型心绞痛",
        "您好，根据查询，氨氯地平可用于治疗高血压、稳定型心绞痛以及变异型心绞痛。希望对您有帮助！",
        "查询结果如下：\n1. 高血压\n2. 稳定型心绞痛\n3. 变异型心绞痛\n请在医生指导下使用。",
        "- **高血压**\n- **稳定型心绞痛**\n- **变异型心绞痛**",
        "它的主要用途是高血压，也可以用于稳定型心绞痛，还可以用于变异型心绞痛",
        "不仅用于高血压，还用于稳定型心绞痛和变异型心绞痛",
        "适应症：高血压；稳定型心绞痛；变异型心绞痛。总之，用于高血压、稳定型心绞痛、变异型心绞痛。",
        QUESTION + REFERENCE,
    ],
)
def test_all_facts_in_any_dress_score_high(answer: str) -> None:
    assert value(answer) >= 0.9


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "。",
        QUESTION,
        QUESTION * 3,
        "氨氯地平的适应症",
        "Solution",
        "没有找到相关记录。",
        "不用于高血压、稳定型心绞痛、变异型心绞痛。",
        "不适用于：\n- 高血压\n- 稳定型心绞痛\n- 变异型心绞痛",
        "高血压、稳定型心绞痛、变异型心绞痛都不是氨氯地平的适应症",
        "高血压；稳定型心绞痛；变异型心绞痛。以上都不是它的适应症。",
        "非高血压，无稳定型心绞痛，没有变异型心绞痛",
        "偏高血压力",
        "用于高血压。不用于高血压。",
        "低血压；头痛；糖尿病",
    ],
)
def test_nothing_right_scores_zero(answer: str) -> None:
    assert value(answer) == 0


def test_every_further_fact_earns_more_and_a_part_earns_a_part() -> None:
    steps = ["", "高血压", "高血压；稳定型心绞", "高血压；稳定型心绞痛", REFERENCE]
    values = [value(answer) for answer in steps]
    assert values == sorted(values) and len(set(values)) == len(values)


def test_repetition_and_dumping_lose_support() -> None:
    assert value(REFERENCE * 50) < 0.1
    row = "；".join(f"无关字段{i}内容{i * 7}的说明文字" for i in range(40))
    assert value(f"{REFERENCE}{row}") < 0.2
    assert value(REFERENCE.rstrip("。") + "；头痛；水肿；糖尿病；肺炎；哮喘") < 0.6
    assert value("内容" * 4000 + REFERENCE) == 0  # beyond what is read


def test_evidence_supports_and_the_question_is_neutral() -> None:
    answer = REFERENCE.rstrip("。") + "；雷诺综合征。"
    assert value(answer) < value(answer, QUESTION, REFERENCE, "高血压；雷诺综合征") == 1
    assert value("雷诺综合征", QUESTION, REFERENCE, "雷诺综合征") == 0
    assert value("氨氯地平的适应症是什么呢，氨氯地平，适应症是高血压") == value("高血压")


@pytest.mark.parametrize(
    ("answer", "high"),
    [
        ("3", True),
        ("3种。", True),
        ("三种", True),
        ("符合条件的药品共有 3 种。", True),
        ("共3种，分别是缬沙坦、氨氯地平和硝苯地平。", True),
        ("13", False),
        ("33种", False),
        ("0.3", False),
        ("3mg", False),
        ("不是3种", False),
        ("3种或4种", False),
        ("1、2、3、4、5", False),
        ("适应症包括高血压的药品", False),
    ],
)
def test_a_count_is_right_or_wrong(answer: str, high: bool) -> None:
    evidence = ("缬沙坦", "氨氯地平", "硝苯地平", "高血压")
    question, reference = "有多少种药品的适应症包括高血压？", "适应症包括高血压的药品共3种。"
    assert (value(answer, question, reference, *evidence) >= 0.9) is high
    if not high:
        assert value(answer, question, reference, *evidence) == 0


DOSE_QUESTION = "布洛芬的用量是多少？"
DOSE = "布洛芬的用量：成人口服每次0.2g每4至6小时1次；缓释胶囊每次0.3g每日2次。"


def test_numbers_must_match() -> None:
    assert value("成人口服，每次 0.2 g，每4~6小时1次；缓释胶囊每次0.3g，每日2次", DOSE_QUESTION, DOSE) >= 0.9
    assert value("成人口服每次2g每4至6小时1次；缓释胶囊每次3g每日2次", DOSE_QUESTION, DOSE) == 0
    assert value("成人口服每次0.2g每4至6小时3次；缓释胶囊每次0.3g每日12次", DOSE_QUESTION, DOSE) == 0
    assert 0 < value("成人口服每次0.2g", DOSE_QUESTION, DOSE) < 0.5


@pytest.mark.parametrize(
    ("fact", "flipped"),
    [
        ("不用于哮喘急性发作", "用于哮喘急性发作"),
        ("妊娠期妇女慎用", "妊娠期妇女不慎用"),
        ("严重肝肾功能不全患者慎用", "严重肝肾功能不全患者禁用"),
        ("与华法林合用增加出血风险", "与华法林合用降低出血风险但不增加"),
        ("氨基转移酶升高", "氨基转移酶降低"),
        ("稳定型心绞痛", "不稳定型心绞痛"),
        ("头痛", "偏头痛"),
        ("2型糖尿病", "1型糖尿病"),
    ],
)
def test_the_opposite_is_not_covered(fact: str, flipped: str) -> None:
    question, reference = "苯溴马隆的注意事项是什么？", f"苯溴马隆的注意事项：{fact}。"
    assert value(fact, question, reference) == 1
    assert value(flipped, question, reference) == 0


def test_a_paraphrase_of_a_long_fact_counts() -> None:
    question, reference = "双氯芬酸的作用机制是什么？", "抑制环氧化酶，减少前列腺素合成而解热镇痛抗炎。"
    assert value("通过抑制环氧化酶来减少前列腺素的合成，从而解热、镇痛、抗炎", question, reference) >= 0.9
    assert value("激活环氧化酶，增加前列腺素合成", question, reference) == 0


def test_facts_belong_to_their_entity() -> None:
    question = "氨氯地平和硝苯地平的不良反应有什么不同？"
    reference = "氨氯地平的不良反应：头痛；水肿。硝苯地平的不良反应：面部潮红；水肿。"
    assert value(reference, question, reference) == 1
    assert value("硝苯地平：面部潮红、水肿；氨氯地平：头痛、水肿", question, reference) == 1
    assert value("两者都有水肿，氨氯地平还有头痛，硝苯地平还有面部潮红", question, reference) == 1
    swapped = "氨氯地平：面部潮红、水肿；硝苯地平：头痛、水肿"
    unnamed = "头痛、水肿、面部潮红"
    claimed_of_both = "两者都有头痛、水肿、面部潮红"
    for cheat in (swapped, unnamed, claimed_of_both):
        assert 0.3 < value(cheat, question, reference, "头痛；水肿", "面部潮红；水肿") < 0.85


def test_the_answer_may_stand_in_the_question() -> None:
    question = "氨氯地平和硝苯地平哪个可用于心绞痛？"
    assert value("硝苯地平", question, "硝苯地平") == 1
    assert value("氨氯地平", question, "硝苯地平") == 0
    assert value(question, question, "硝苯地平") == 0
    assert value("氨氯地平和硝苯地平", question, "硝苯地平") < 0.7
    assert value("盐酸", "索他洛尔的成分是什么？", "索他洛尔的成分：盐酸索他洛尔。") < 0.7


def test_english() -> None:
    question, reference = "What are the indications of amlodipine?", "Indications: hypertension; stable angina."
    assert value("Amlodipine is used for hypertension and stable angina.", question, reference) >= 0.9
    assert value("hypertension, unstable angina", question, reference) <= 0.5
    assert value("not hypertension; no stable angina", question, reference) == 0


def test_a_reference_without_facts_is_no_reference() -> None:
    assert grade(question="问", reference="", answer="答") is None
    assert grade(question="问", reference="。；", answer="答") is None


def test_the_explanation_names_what_is_missing_and_invented() -> None:
    text = verdict("高血压；糖尿病").explanation
    assert "稳定型心绞痛" in text and "糖尿病" in text and "coverage 0.33" in text


@given(st.permutations(FACTS), st.sampled_from(["；", "、", "，", "\n", "和", "。"]))
def test_order_and_separator_do_not_matter(facts: list[str], separator: str) -> None:
    assert value(separator.join(facts)) == pytest.approx(1)


@given(st.text(alphabet=st.sampled_from("高血压不无稳定型心绞痛；，：。、3的是 \n(a.5氨氯地平"), max_size=60))
def test_any_answer_gets_a_value_and_always_the_same(answer: str) -> None:
    assert value(answer) == value(answer)


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=80))
@settings(max_examples=50)
def test_any_reference_and_question_are_survived(question: str, reference: str, answer: str) -> None:
    found = grade(question=question, reference=reference, answer=answer, evidence=[answer])
    assert found is None or 0 <= found.value <= 1


@given(st.lists(st.sampled_from(["头痛", "水肿", "肺炎球菌感染", "每日5次", "哮喘持续状态"]), min_size=1, unique=True))
def test_an_invented_fact_never_pays(invented: list[str]) -> None:
    assert value("；".join([*FACTS[:2], *invented])) < value("；".join(FACTS[:2]))


def test_random_characters_of_the_reference_do_not_pay() -> None:
    rng = random.Random(0)
    letters = list("高血压稳定型心绞痛变异型")
    values = []
    for _ in range(200):
        rng.shuffle(letters)
        values.append(value("".join(letters)))
    assert sum(values) / len(values) < 0.05


def test_the_question_again_is_a_copy_and_its_answer_is_not() -> None:
    assert is_copy(QUESTION, QUESTION) and not is_copy(QUESTION, REFERENCE)


def test_normal_form() -> None:
    assert normalise("５ ｍｇ，1,000片") == "5mg;1000片"
    assert normalise("共有十二种、两种、一种") == "共有12种、2种、一种"
    assert normalise("100～200mg 或 1 ~ 2片") == "100至200mg或1至2片"
    assert tokens(normalise("H1受体0.5g")) == ("h", "1", "受", "体", "500", "mg")


# What only mentions a fact, or says it of somebody else


MENTIONED = [
    "高血压吗？稳定型心绞痛吗？变异型心绞痛吗？",
    "难道不是高血压、稳定型心绞痛和变异型心绞痛？",
    "有谣言说它用于高血压、稳定型心绞痛、变异型心绞痛。",
    "有人误以为它的适应症是高血压、稳定型心绞痛、变异型心绞痛。",
    "如果听说它用于高血压、稳定型心绞痛、变异型心绞痛，那是错误的。",
    "高血压；稳定型心绞痛；变异型心绞痛。上述说法已经过时。",
    "卡托普利的适应症：高血压；稳定型心绞痛；变异型心绞痛。",
    "卡托普利：高血压；稳定型心绞痛；变异型心绞痛。",
    "卡托普利用于这些：高血压；稳定型心绞痛；变异型心绞痛。",
    "与它相近的硝苯地平可用于：高血压；稳定型心绞痛；变异型心绞痛。",
    "硝苯地平用于高血压、稳定型心绞痛和变异型心绞痛。",
]


@pytest.mark.parametrize("answer", MENTIONED)
def test_a_fact_that_is_only_mentioned_is_not_said(answer: str) -> None:
    assert value(answer, QUESTION, REFERENCE, "高血压；稳定型心绞痛；变异型心绞痛") == 0


@pytest.mark.parametrize(
    "answer",
    [
        "盐酸氨氯地平的适应症：高血压；稳定型心绞痛；变异型心绞痛。",
        "该药的适应症：高血压；稳定型心绞痛；变异型心绞痛。",
        "补充说明：高血压；稳定型心绞痛；变异型心绞痛。",
        "它用于什么？高血压、稳定型心绞痛、变异型心绞痛。",
        "高血压、稳定型心绞痛、变异型心绞痛三种",
    ],
)
def test_other_names_of_the_same_and_heads_do_no_harm(answer: str) -> None:
    assert value(answer) >= 0.8


@pytest.mark.parametrize(
    ("fact", "swapped"),
    [
        ("与华法林合用增加出血风险", "与地高辛合用增加出血风险"),
        ("严重肝功能不全者慎用", "严重肾功能不全者慎用"),
        ("疑有胰腺炎应停药", "疑有胆囊炎应停药"),
        ("饭后半小时口服", "饭后半小时外涂"),
        ("抑制细菌蛋白质合成", "抑制病毒核酸合成"),
        ("用药期间避免饮酒", "用药期间鼓励饮酒"),
    ],
)
def test_another_word_in_the_place_of_one_is_another_fact(fact: str, swapped: str) -> None:
    question, reference = "苯溴马隆的注意事项是什么？", f"苯溴马隆的注意事项：{fact}。"
    assert value(fact, question, reference) == 1
    assert value(swapped, question, reference) == 0


@pytest.mark.parametrize(
    ("fact", "reworded"),
    [
        ("孕妇慎用", "孕妇谨慎使用"),
        ("血钾升高", "血钾上升"),
        ("与阿司匹林合用增加出血风险", "和阿司匹林一起服用会增加出血的风险"),
        ("每日口服2次", "每天口服2次"),
    ],
)
def test_common_synonyms_are_the_same_word(fact: str, reworded: str) -> None:
    question, reference = "苯溴马隆的注意事项是什么？", f"苯溴马隆的注意事项：{fact}。"
    assert value(reworded, question, reference) >= 0.8


def test_a_second_number_takes_the_first_one_back() -> None:
    question, reference = "布洛芬的规格是什么？", "布洛芬的规格：0.3g/粒。"
    assert value("0.3g/粒", question, reference) == 1
    for hedge in ("0.3g/粒或0.5g/粒", "0.2g/粒、0.3g/粒", "0.3g/粒。不，是0.1g/粒。"):
        assert value(hedge, question, reference) == 0
    contradicted = "多见于儿童，男性多于女性。不过该病的男性并不多于女性。"
    assert value(contradicted, "川崎病的流行病学？", "川崎病的流行病学：多见于儿童，男性多于女性。") < 0.6


def test_permission_denies_a_contraindication() -> None:
    question, reference = "华法林的禁忌是什么？", "华法林的禁忌：妊娠期；活动性出血；严重肝功能不全。"
    assert value("妊娠期、活动性出血、严重肝功能不全者不可使用", question, reference) >= 0.8
    for praise in ("妊娠期、活动性出血、严重肝功能不全都可以放心使用", "推荐用于妊娠期、活动性出血、严重肝功能不全"):
        assert value(praise, question, reference) == 0


@pytest.mark.parametrize(
    "piece", ["高血压x", "稳定型心", "氨氯地平的适应症：", "的治疗", "可以", "1.", "？", "不", "高血压；"]
)
def test_any_repetition_is_judged_fast(piece: str) -> None:
    started_s = time.process_time()
    assert value(piece * (8000 // len(piece))) < 0.3
    assert time.process_time() - started_s < 3
