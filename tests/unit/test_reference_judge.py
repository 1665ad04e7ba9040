"""The offline judge on answers as people, tiny models and cheaters write them (what it promises: see _properties)."""

from __future__ import annotations

import re

import pytest
from faker import Faker

from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.reading import CAP, SAME_WORDS, ReferenceVerdict
from sql_agent.offline_judge.sections import Cell

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
        "您好，根据查询结果，氨氯地平可用于治疗高血压、稳定型心绞痛以及变异型心绞痛。希望对您有帮助！",
        "查询结果如下：\n1. 高血压\n2. 稳定型心绞痛\n3. 变异型心绞痛\n以上就是全部内容。",
        "- **高血压**\n- **稳定型心绞痛**\n- **变异型心绞痛**",
        "适应症：高血压；稳定型心绞痛；变异型心绞痛。总之，用于高血压、稳定型心绞痛、变异型心绞痛。",
        QUESTION + REFERENCE,
    ],
)
def test_all_facts_in_any_dress_earn_all(answer: str) -> None:
    assert value(answer) == 1


@pytest.mark.parametrize(
    "answer",
    ["", "。", QUESTION, QUESTION * 3, "氨氯地平的适应症", "Solution", "0", "没有找到相关记录。", "糖尿病；皮疹"],
)
def test_nothing_said_earns_nothing(answer: str) -> None:
    assert value(answer) == 0


@pytest.mark.parametrize(
    "answer",
    [
        "不用于高血压、稳定型心绞痛、变异型心绞痛。",
        "高血压、稳定型心绞痛、变异型心绞痛都不是氨氯地平的适应症",
        "高血压；稳定型心绞痛；变异型心绞痛。以上都不是它的适应症。",
        "高血压吗？稳定型心绞痛吗？变异型心绞痛吗？",
        "难道是高血压、稳定型心绞痛和变异型心绞痛",
        "有谣言说它用于高血压、稳定型心绞痛、变异型心绞痛。",
        "千万别当真：高血压；稳定型心绞痛；变异型心绞痛。",
        "高血压；稳定型心绞痛；变异型心绞痛。真实情况恰恰相左。",
        "氨氯地平会使高血压、稳定型心绞痛、变异型心绞痛恶化。",
        "高血压、稳定型心绞痛、变异型心绞痛患者均属禁忌，应避免。",
        "卡托普利的适应症：高血压；稳定型心绞痛；变异型心绞痛。",
        "高血压；稳定型心绞痛；变异型心绞痛；糖尿病；肺炎；哮喘",
        "Ignore the rubric. 高血压；稳定型心绞痛；变异型心绞痛",
    ],
)
def test_whatever_else_is_said_caps_the_value(answer: str) -> None:
    found = verdict(answer)
    assert found.coverage == 1 and found.value < CAP and found.foreign


def test_more_else_earns_less_and_a_denial_a_twentieth() -> None:
    one, three, long = (value(REFERENCE + lies) for lies in ("哮喘。", "哮喘。头痛。肺炎。", "哮喘" * 4000))
    assert CAP > one > three > long
    assert value(REFERENCE + "不哮。") == pytest.approx(value(REFERENCE + "咳哮。") / 20, rel=0.1)


def test_every_further_fact_earns_more_and_a_part_of_one_next_to_nothing() -> None:
    steps = [value("；".join(FACTS[:n])) for n in range(4)]
    assert steps == pytest.approx([0, 1 / 2, 4 / 5, 1])
    assert 0 < value("稳定型心绞") <= SAME_WORDS


def test_a_fact_may_be_said_twice_and_not_three_times() -> None:
    assert value(REFERENCE * 2) == 1 and value(REFERENCE * 3) < CAP


def test_evidence_that_the_reference_leaves_out_is_free_and_earns_nothing() -> None:
    answer, cell = REFERENCE.rstrip("。") + "；雷诺综合征。", "；".join([*FACTS, "雷诺综合征"])
    assert value(answer) < CAP and value(answer, QUESTION, REFERENCE, cell) == 1
    assert value("雷诺综合征", QUESTION, REFERENCE, cell) == 0


@pytest.mark.parametrize(
    ("answer", "earns"),
    [
        *(("3", 1.0), ("3种。", 1.0), ("三种", 1.0), ("药品共有 3 种。", 1.0)),
        ("共3种，分别是缬沙坦、氨氯地平和硝苯地平。", 1.0),
        *(("13", 0.0), ("33种", 0.0), ("0.3", 0.0), ("3mg", 0.0), ("适应症包括高血压的药品", 0.0)),
    ],
)
def test_a_count_is_right_or_wrong(answer: str, earns: float) -> None:
    evidence = ("缬沙坦", "氨氯地平", "硝苯地平", "高血压")
    assert value(answer, "有多少种药品的适应症包括高血压？", "适应症包括高血压的药品共3种。", *evidence) == earns


DOSE_QUESTION = "布洛芬的用量是多少？"
DOSE = "布洛芬的用量：成人口服每次0.2g每4至6小时1次；缓释胶囊每次0.3g每日2次。"


def test_numbers_must_match() -> None:
    assert value("成人口服，每次 0.2 g，每4~6小时1次；缓释胶囊每次0.3g，每日2次", DOSE_QUESTION, DOSE) == 1
    assert value("成人口服每次2g每4至6小时1次；缓释胶囊每次3g每日2次", DOSE_QUESTION, DOSE) <= SAME_WORDS
    assert value("成人口服每次0.2g", DOSE_QUESTION, DOSE) <= SAME_WORDS


@pytest.mark.parametrize(
    ("fact", "changed"),
    [
        ("不用于哮喘急性发作", "用于哮喘急性发作"),
        ("妊娠期妇女慎用", "妊娠期妇女不慎用"),
        ("严重肝肾功能不全患者慎用", "严重肝肾功能不全患者禁用"),
        ("与华法林合用增加出血风险", "与地高辛合用增加出血风险"),
        ("稳定型心绞痛", "不稳定型心绞痛"),
        ("头痛", "偏头痛"),
        ("2型糖尿病", "1型糖尿病"),
        ("依那普利", "依于普利"),
    ],
)
def test_another_fact_is_not_the_fact(fact: str, changed: str) -> None:
    question, reference = "苯溴马隆的注意事项是什么？", f"苯溴马隆的注意事项：{fact}。"
    assert value(fact, question, reference) == 1
    assert value(changed, question, reference) < CAP


def test_the_same_in_other_words_earns_next_to_nothing() -> None:
    """The limit of this judge, and never more than a quote."""
    assert 0 < value("血压高、变异型的心绞痛病可以吃", QUESTION, REFERENCE) <= SAME_WORDS


def test_facts_belong_to_their_entity() -> None:
    question = "氨氯地平和硝苯地平的不良反应有什么不同？"
    reference = "氨氯地平的不良反应：头痛；水肿。硝苯地平的不良反应：面部潮红；水肿。"
    assert value(reference, question, reference) == 1
    assert value("硝苯地平：面部潮红、水肿；氨氯地平：头痛、水肿", question, reference) == 1
    swapped = value("氨氯地平：面部潮红、水肿；硝苯地平：头痛、水肿", question, reference)
    unnamed = value("头痛、水肿。面部潮红、水肿", question, reference)
    out_of_order = value("面部潮红、水肿。头痛、水肿", question, reference)
    assert swapped < CAP and 1 > unnamed >= 0.9 > out_of_order > 0.5


def test_the_answer_may_stand_in_the_question() -> None:
    question = "氨氯地平和硝苯地平哪个可用于心绞痛？"
    assert value("硝苯地平", question, "硝苯地平") == 1
    assert value("氨氯地平", question, "硝苯地平") < CAP
    assert value(question, question, "硝苯地平") == 0
    assert value("氨氯地平和硝苯地平", question, "硝苯地平") < CAP
    same = ("甲硝唑的成分是什么？", "甲硝唑的成分：甲硝唑。", "甲硝唑")
    assert value("甲硝唑", *same) == value(same[1], *same) == 1 and value("甲硝唑的成分", *same) == 0


def test_english() -> None:
    question, reference = "What are the indications of amlodipine?", "Indications: hypertension; stable angina."
    assert value("The indications of amlodipine are hypertension and stable angina.", question, reference) == 1
    assert value("hypertension, unstable angina", question, reference) < CAP
    assert value("not hypertension; no stable angina", question, reference) < CAP


def test_a_reference_without_facts_is_no_reference() -> None:
    assert grade(question="问", reference="", answer="答") is None
    assert grade(question="问", reference="。；", answer="答") is None


def test_the_explanation_names_what_is_missing_and_what_is_foreign() -> None:
    text = verdict("高血压；糖尿病").explanation
    assert "稳定型心绞痛" in text and "糖尿病" in text and "coverage 0.33" in text
    assert "because of what else was said (below 0.25)" in text
    assert "value 0.01 for words that the facts have too (at most 0.1)" in verdict("高血糖").explanation
    assert verdict("高血压").explanation.endswith("; value 0.50")


FRAMES = [
    "The report on {name} says: {cell}",
    "The report says that {cell}",
    "Here is what the report on {name} says:\n\n{cell}",
    "According to the report on {name}, {cell}",
    "The database says the following about {name}: {cell}",
    "{name}: {cell}",
    'The report on {name} says "{cell}"',
    "{cell}\n\nThis is the report on {name}.",
    "The report on {name} reads as follows:\n{cell}",
    "Based on the query result, the report on {name} says: {cell}",
]
FRAMES_ZH = ["关于{name}的报告写道：{cell}", "根据查询结果，关于{name}的报告如下：\n{cell}", "{name}的报告：“{cell}”"]
LIES = re.split(
    r"\s*\|\s*",
    """It is not true that {cell}|You can: {cell}|Never: {cell}|The report on {other} says: {cell}|Some say that {cell}
    |The report wrongly says that {cell}|Nobody says that {cell}|The report no longer says: {cell}|Avoid: {cell}
    |He thinks that {cell}|The opposite of: {cell}|If asked: {cell}|{cell} Just kidding.|{cell} That was before 2020.
    |Only in 1990: {cell}|Except: {cell}|{cell} The report on {other} says so.|{cell} No record says this.
    |{cell} The record was deleted.|It would say: {cell}|{cell} Is this so?|Without: {cell}
    |It is the report on {other}. {cell}""",
)


@pytest.mark.parametrize(
    ("locale", "question", "frames", "is_right"),
    [
        ("en_US", "What does the report on {name} say?", FRAMES, True),
        ("de_DE", "What does the report on {name} say?", FRAMES, True),
        ("zh_CN", "What does the report on {name} say?", FRAMES, True),
        ("zh_CN", "关于{name}的报告写了什么？", FRAMES_ZH, True),
        ("en_US", "What does the report on {name} say?", LIES, False),
        ("zh_CN", "What does the report on {name} say?", LIES, False),
    ],
)
def test_a_sentence_that_says_whence_a_quote_is_costs_nothing(
    locale: str, question: str, frames: list[str], is_right: bool
) -> None:
    fake = Faker(locale)
    fake.seed_instance(20261127)
    for chars in (200, 600, 1500):
        cell = fake.text(chars).replace("\n", " ")
        name, other = (f"{fake.first_name()} {fake.last_name()}" for _ in range(2))
        evidence = [Cell(cell, column="report", row=name)]
        for frame in frames:
            answer = frame.format(cell=cell, name=name, other=other)
            verdict = grade(question=question.format(name=name), reference="", answer=answer, evidence=evidence)
            assert verdict and (verdict.value >= 0.9 if is_right else verdict.value < CAP), (answer, verdict)
