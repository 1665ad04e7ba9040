"""The normal form of the offline judge, the words it finds in it, and tables."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sql_agent.offline_judge.exam import make_exam
from sql_agent.offline_judge.halves import Halves
from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.lexicon import Lexicon
from sql_agent.offline_judge.normal import normalise
from sql_agent.offline_judge.reading import CAP
from sql_agent.offline_judge.sections import Cell
from sql_agent.offline_judge.tables import by_column
from sql_agent.offline_judge.words import PHRASES, RELATIONS

USES = ("氨氯地平的适应症是什么？", "氨氯地平的适应症：高血压；稳定型心绞痛。")
PACK = ("布洛芬的规格是什么？", "布洛芬的规格：300mg/粒。")
COUNT = ("有多少种药的适应症包括高血压？", "适应症包括高血压的药品共3种。")
BOTH = ("比较甲硝唑和替硝唑的不良反应。", "甲硝唑的不良反应：恶心；口腔金属味。替硝唑的不良反应：头痛；皮疹。")
USES_OF_TWO = (
    "氨氯地平的适应症和贮藏条件是什么？",
    "氨氯地平的适应症：高血压；心绞痛。氨氯地平的贮藏条件：遮光；密封。",
)


def value(asked: tuple[str, str], answer: str) -> float:
    found = grade(question=asked[0], reference=asked[1], answer=answer)
    assert found is not None
    return found.value


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("５ ｍｇ，1,000片", "5mg;1000片"),
        ("共有十二种、两种、一种", "共有12种、2种、1种"),
        ("100～200mg 或 1 ~ 2片", "100-200mg或1-2片"),
        ("二点五毫克，25 摄氏度，500 毫克/片", "2.5mg;25°c;500mg/片"),
        ("高\u200b血\u00ad压\ufeff", "高血压"),
        ("**高血压**、`心绞痛`", "高血压、心绞痛"),
        ("①阿司匹林②氟康唑", "阿司匹林\n氟康唑"),
        ("1. 头痛\n2. 皮疹", "头痛\n皮疹"),
        ("1、2、3、4", "1、2、3、4"),
        ("- 5mg", "5mg"),
        ("成人（早晚各一次）", "成人、早晚各1次、"),
        ("無論如何不用於高血壓、紅疹、瘋癱", "无论如何不用于高血压、红疹、疯瘫"),
        ("It is  5 mg a day", "it is 5mg a day"),
        ("百千点", "百千点"),
    ],
)
def test_normal_form(written: str, normal: str) -> None:
    assert normalise(written) == normal


@given(st.text(max_size=60))
@settings(deadline=None)
def test_any_text_has_a_normal_form(text: str) -> None:
    assert isinstance(normalise(text), str)


def test_the_longest_word_counts_and_none_cuts_a_number_or_a_latin_word() -> None:
    words = Lexicon(["头痛", "偏头痛", "3", "15mg每日", "angina", ""])

    def found(text: str) -> list[str]:
        return [word.replace(" ", "") for *_, word in words.read(text, Lexicon(()))[0]]

    assert found("偏头痛和头痛") == ["偏头痛", "头痛"]
    assert found("13 0.3 3.5 3-4 3mg 3% x3") == [] and found("共3种") == ["3"]
    assert found("15mg;每日") == ["15mg每日"] and found("头|痛") == found("头\n痛") == ["头痛"]
    assert found("unstable angina, anginas") == ["angina"]


def test_what_is_left_over_is_foreign() -> None:
    text, echoes = "适应症有高血压,不良", Lexicon(["适应", "应症", "不良反应"])
    assert [text[a:b] for a, b in Lexicon(["高血压", "有"]).read(text, echoes)[1]] == ["不良"]
    assert not Lexicon(()).read("不良反应", echoes)[1]


DENIAL = set("不无非未没勿莫否除假误错反")


def test_the_closed_list_denies_doubts_permits_and_counts_nothing() -> None:
    phrases = [phrase for phrase in PHRASES.split() if phrase not in ("第1", "第2", "第3", "1共", "1共有")]
    assert len(phrases) < 180 and not any(set(phrase) & DENIAL or any(map(str.isdigit, phrase)) for phrase in phrases)
    assert not set(phrases) & {
        "可",
        "可以",
        "可能",
        "用",
        "能",
        "只",
        "仅",
        "或",
        "应",
        "避免",
        "遵医嘱",
        "医生",
        "仅供参考",
    }
    says = [word for _, words in RELATIONS for word in words.split()]
    assert len(says) < 60 and [word for word in says if set(word) & DENIAL] == ["不良反应"]


def test_a_relation_counts_only_where_that_kind_of_thing_is_asked_for() -> None:
    assert value(USES, "氨氯地平用于治疗高血压、稳定型心绞痛。") == 1
    for other in ("禁用于高血压、稳定型心绞痛", "可引起高血压、稳定型心绞痛", "高血压、稳定型心绞痛均属禁忌"):
        assert value(USES, other) < CAP
    both = ("氨氯地平的适应症和禁忌症是什么？", "氨氯地平的适应症：高血压。氨氯地平的禁忌症：低血压。")
    assert value(both, "适应症：高血压。禁忌症：低血压。") == 1
    assert value(both, "禁用于高血压，可用于低血压。") < CAP


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (USES, "高\u200b血压；稳定\u00ad型心绞痛\ufeff"),
        (USES, "氨氯地平的適應症：高血壓；穩定型心絞痛。"),
        (USES, "| 序号 | 适应症 |\n|:---:|---|\n| 1 | 高血压 |\n| 2 | 稳定型心绞痛 |"),
        (USES, '{"适应症": ["高血压", "稳定型心绞痛"]}'),
        (USES, "氨氯地平有两种适应症：高血压和稳定型心绞痛。"),
        (PACK, "规格：３００ｍｇ／粒"),
        (PACK, "300毫克/粒"),
        (COUNT, "三种"),
        (COUNT, "符合的药品一共有 3 种。".replace("符合的", "")),
        (BOTH, "| 甲硝唑 | 替硝唑 |\n|---|---|\n| 恶心 | 头痛 |\n| 口腔金属味 | 皮疹 |"),
        (BOTH, "| 药品 | 不良反应 |\n|---|---|\n| 甲硝唑 | 恶心、口腔金属味 |\n| 替硝唑 | 头痛、皮疹 |"),
        (USES_OF_TWO, "贮藏条件：密封、遮光。适应症：心绞痛、高血压。"),
    ],
)
def test_the_form_does_not_count(asked: tuple[str, str], answer: str) -> None:
    assert value(asked, answer) == 1


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (COUNT, "共1\u200b3种。"),
        (COUNT, "1、2、3、4、5"),
        (COUNT, "1. 2\n2. 3\n3. 4"),
        (PACK, "300\u20600mg/粒"),
        (PACK, "300μg/粒"),
        (PACK, "1300mg/粒"),
        (PACK, "300mg/粒或500mg/粒"),
        (USES, "旡论如何都不是高血压，也不是稳定型心绞痛"),
        (USES, "~~高血压；稳定型心绞痛~~"),
        (USES, "偏高血压、不稳定型心绞痛"),
        (USES, "| 适应症 | 是否记载 |\n|---|---|\n| 高血压 | 否 |\n| 稳定型心绞痛 | 否 |"),
        (BOTH, "| 甲硝唑 | 替硝唑 |\n|---|---|\n| 头痛 | 恶心 |\n| 皮疹 | 口腔金属味 |"),
        (BOTH, "| | 甲硝唑 | 替硝唑 |\n|---|---|---|\n| 1 | 头痛 | 恶心 |\n| 2 | 皮疹 | 口腔金属味 |"),
        (BOTH, "您好！|甲硝唑|替硝唑|\n|-|-|\n|头痛|恶心|\n|皮疹|口腔金属味|"),
        (BOTH, "|甲硝唑|替硝唑|\n|-|-|\n|恶心|头痛|均为谣言|\n|口腔金属味|皮疹|"),
        (USES_OF_TWO, "适应症：遮光、密封。贮藏条件：高血压、心绞痛。"),
    ],
)
def test_what_is_hidden_or_shifted_does_not_pay(asked: tuple[str, str], answer: str) -> None:
    assert value(asked, answer) < CAP


def test_tables_by_column() -> None:
    table = normalise("前\n| 序号 | 甲 | 乙 |\n|---|---|---|\n| 1 | 一样 | 二样 |\n后")
    told = by_column(table, ["甲", "乙"], (), Halves({}).whole).split("\n")
    assert [cell for cell in told if cell] == ["前", "序号", "---", "甲", "---", "1样", "乙", "---", "2样", "后"]
    assert by_column("前|甲|乙|\n|1样|2样|3样|", ["甲", "乙"], (), Halves({}).whole).split() == [
        "前",
        "甲",
        "1样",
        "乙",
        "2样",
        "3样",
    ]
    assert (
        by_column(table, ["甲"], (), Halves({}).whole) == table
        and by_column("甲乙", ["甲", "乙"], (), Halves({}).whole) == "甲乙"
    )


@pytest.mark.parametrize(
    ("question", "reference", "lie"),
    [
        ("阿司匹林不适用于哪些人群？", "儿童；孕妇", "阿司匹林适用于儿童；孕妇"),
        ("阿司匹林不适用于哪些人群？", "儿童；孕妇", "阿司匹林用于儿童；孕妇"),
        (
            "阿司匹林不能使用的情况是什么？",
            "阿司匹林的不能使用的情况：哮喘；溃疡。",
            "阿司匹林能使用的情况：哮喘；溃疡。",
        ),
        (
            "阿司匹林不能使用的情况是什么？",
            "阿司匹林的不能使用的情况：哮喘；溃疡。",
            "阿司匹林使用的情况：哮喘；溃疡。",
        ),
        ("哪些人慎用阿司匹林？", "哮喘患者；孕妇", "用阿司匹林的有：哮喘患者；孕妇"),
        ("孕妇能服用甲硝唑吗？", "甲硝唑可通过胎盘；妊娠早期禁用", "孕妇能服用甲硝唑。甲硝唑可通过胎盘；妊娠早期禁用"),
        ("甲硝唑对胎儿是否安全？", "甲硝唑可通过胎盘；妊娠早期禁用", "甲硝唑对胎儿安全。可通过胎盘；妊娠早期禁用"),
        ("能不能与牛奶同服？", "不能与牛奶同服；多饮水", "能与牛奶同服；多饮水"),
    ],
)
def test_no_part_of_the_question_turns_a_quote_round(question: str, reference: str, lie: str) -> None:
    assert value((question, reference), lie) < CAP < value((question, reference), reference) == 1


def test_a_name_of_the_question_is_free_where_the_reference_leaves_it_out() -> None:
    assert value(("氨氯地平的不良反应是什么？", "头痛；水肿"), "氨氯地平的不良反应有：头痛、水肿。") == 1


def test_what_the_evidence_tells_under_a_label_is_quoted_with_its_own_alone() -> None:
    evidence = ("抗病毒治疗：阿昔洛韦、伐昔洛韦", "止痛：加巴喷丁、普瑞巴林")
    asked = ("带状疱疹怎样治疗？", "使用阿昔洛韦、伐昔洛韦；疼痛者用加巴喷丁或普瑞巴林。")

    def paid(answer: str) -> float:
        found = grade(question=asked[0], reference=asked[1], answer=answer, evidence=evidence)
        assert found is not None
        return found.value

    assert paid("。".join(evidence)) == paid("- " + "\n- ".join(evidence)) == paid(asked[1]) == 1
    assert paid("抗病毒治疗：加巴喷丁、普瑞巴林。止痛：阿昔洛韦、伐昔洛韦。") < CAP


def test_two_words_of_the_question_are_two_things_only_where_it_compares_them() -> None:
    reference = "老年人肾功能减退，地高辛清除减慢，容易中毒，应减小剂量。"
    evidence = ("老年人肝肾功能减退，地高辛清除减慢，易发生中毒", "应使用较小剂量")
    for quote in (reference, "；".join(evidence)):
        found = grade(
            question="老年人使用地高辛需要注意哪些问题？", reference=reference, answer=quote, evidence=evidence
        )
        assert found and found.value >= 0.9


def test_facts_are_the_clauses_of_the_evidence_and_those_alone_that_a_quoting_reference_has() -> None:
    evidence = ("用于高血压；稳定型心绞痛；妊娠期慎用",)
    exam = make_exam(USES[0], "根据提供的参考资料，它能降血压，也治稳定的心绞痛。", evidence)
    assert exam and [fact.forms[0] for fact in exam.facts] == ["用于高血压", "稳定型心绞痛", "妊娠期慎用"]
    exam = make_exam(USES[0], "根据提供的参考资料：用于高血压；稳定型心绞痛。", evidence)
    assert exam and [fact.forms[0] for fact in exam.facts] == ["用于高血压", "稳定型心绞痛"]
    exam = make_exam(*COUNT, ("氨氯地平", "高血压", "硝苯地平"))
    assert exam and [fact.forms[0] for fact in exam.facts] == ["3"]
    exam = make_exam(USES[0], "", ("高血压；心绞痛",))
    assert exam and len(exam.facts) == 2
    assert make_exam("问", "。；", ()) is None


@pytest.mark.parametrize(
    "piece",
    [
        "高血压、",
        "?\n",
        "|氨|b|\n|-|-|\n",
        "氨氯地平的适应症是什么",
        "\u200b",
        "5mg、",
        "二点五毫克",
        "一",
        "(",
        "1. ",
        "氨氯地平的，",
        "is there anything else ",
        "<tr><td>1",
        "<p><b>a</b> ",
        "a - b, ",
        "以上信息。",
        "```  ",
        '{"\\n',
        "> ",
        "a) ",
        "first, ",
        "<b>a</b><br>",
    ],
)
def test_long_answers_take_linear_time(piece: str) -> None:
    started_s = time.process_time()
    assert value(USES, piece * (20_000 // len(piece))) < CAP
    assert time.process_time() - started_s < 5


@pytest.mark.parametrize("piece", ["是的。", "答案是", "no. ", "so the answer is "])
def test_long_verdicts_take_linear_time(piece: str) -> None:
    started_s = time.process_time()
    verdict = grade(
        question="氨氯地平能治高血压吗？", reference="可以，用于高血压。", answer=piece * (20_000 // len(piece))
    )
    assert verdict and verdict.value < CAP
    assert time.process_time() - started_s < 5


@pytest.mark.parametrize(
    "question",
    [
        "What are the care notes of silver fern and of stone lily?",
        "How do the care notes of silver fern and those of stone lily differ?",
        "Give the care notes of silver fern, and of stone lily.",
        "Tell me the care notes for silver fern as well as for stone lily.",
        "Compare the care notes of silver fern with those of stone lily.",
        "How is silver fern cared for, and how is stone lily?",
        "What are the care notes of silver fern, and what are those of stone lily?",
    ],
)
def test_two_things_are_told_apart_however_the_question_joins_them(question: str) -> None:
    fern, lily = "prune in march; keep the roots moist", "shade from noon; is it in bud? feed twice"
    cells = [Cell(fern, "plants 1", "care notes"), Cell(lily, "plants 2", "care notes")]

    def paid(answer: str) -> float:
        found = grade(question=question, reference="", answer=answer, evidence=cells, kind="text")
        assert found is not None
        return found.value

    assert paid(f"silver fern: {fern}\nstone lily: {lily}") >= 0.9
    assert paid(f"silver fern: {lily}\nstone lily: {fern}") <= 0.1
