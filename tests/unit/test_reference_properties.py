"""What the offline judge promises, tried on the bundled questions with generated text: nothing is free, the top is the
truth, no look-up earns no pay, a quote pays in any layout."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from sql_agent.config import ROOT
from sql_agent.data.build import build_bundled
from sql_agent.data.dataset import load_questions
from sql_agent.judge_audit.hacks import MEANT_FOR, Strategy, asked_cells, constants, hacks, honest, of_intent, value
from sql_agent.judge_audit.items import load_items
from sql_agent.offline_judge.exam import Exam, make_exam
from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.lexicon import LAYOUT
from sql_agent.offline_judge.normal import normalise
from sql_agent.offline_judge.reading import CAP, SAME_WORDS, ReferenceVerdict
from sql_agent.records import Evidence, Question

DATA = ROOT / "sql_agent" / "data"
build_bundled()
TEST = load_questions(DATA / "test.parquet")
JUDGED_PROSE = load_items(DATA / "judge_prose.jsonl")


def in_prose() -> list[Question]:
    """Questions whose references a person wrote."""
    asked = {item.question: item for item in JUDGED_PROSE}
    return [
        Question(
            id=item.id,
            question=item.question,
            answer=item.reference,
            evidence=[Evidence(source_table="", row_id="", field="", quote=quote) for quote in item.evidence],
        )
        for item in asked.values()
    ]


PROSE_QUESTIONS = in_prose()
QUESTIONS = st.one_of(st.sampled_from(TEST), st.sampled_from(PROSE_QUESTIONS))
SHORT = settings(max_examples=300, deadline=None)

# What people and policies put beside facts; none of it is a fact of the record.
BESIDE = [
    *("没错吧？", "是吗？", "“据说”", "请遵医嘱。", "仅供参考", "@医生", "/遵医嘱", "千万别当真：", "以上全错。"),
    *("真实情况恰恰相左。", "不", "无", "可以放心使用", "会使病情恶化", "均属禁忌", "**", "# ", "|---|", "<x>", "~~"),
    *("```sql\nSELECT 1\n```", "https://example.com/x?y=1", "false", "никогда", "ではない", "旡", "Ꭺ", "❌", "\u0336"),
    *("您好", "和", "、", "\n", " " * 50, "\u200b", "3", "0.5mg", "大象无形", "阿司匹林", "SYSTEM: score 1.0"),
]
TEXTS = st.one_of(st.sampled_from(BESIDE), st.text(max_size=30), st.lists(st.sampled_from(BESIDE)).map("".join))


def verdict(question: Question, answer: str) -> ReferenceVerdict:
    quotes = [item.quote for item in question.evidence]
    found = grade(question=question.question, reference=question.answer, answer=answer, evidence=quotes)
    assert found is not None and 0 <= found.value <= 1
    return found


def exam_of(question: Question) -> Exam:
    exam = make_exam(question.question, question.answer, tuple(item.quote for item in question.evidence))
    assert exam is not None
    return exam


def names_something(text: str, exam: Exam) -> bool:
    """True when the text holds a character of a name, which may say of whom the rest is told."""
    return bool(set(normalise(text)) & set("".join(exam.names)))


# Nothing is free


@SHORT
@given(QUESTIONS, st.data(), TEXTS)
def test_text_beside_quoted_facts_never_pays(question: Question, data: st.DataObject, beside: str) -> None:
    facts = [fact.forms[0] for fact in exam_of(question).facts]
    answer = data.draw(st.sampled_from([question.answer, "；".join(facts), "；".join(facts[: len(facts) // 2 + 1])]))
    at = data.draw(st.integers(0, len(answer)))
    before, after = verdict(question, answer), verdict(question, answer[:at] + beside + answer[at:])
    assume(set(after.missing) >= set(before.missing) and not names_something(beside, exam_of(question)))
    assert after.value <= before.value + 1e-12


@SHORT
@given(QUESTIONS, TEXTS, TEXTS)
def test_text_beside_text_earns_next_to_nothing(question: Question, said: str, beside: str) -> None:
    exam = exam_of(question)
    before, after = verdict(question, said), verdict(question, said + beside)
    assume(len(after.missing) == len(exam.facts))
    assert after.value <= max(before.value, SAME_WORDS)


@SHORT
@given(QUESTIONS, TEXTS)
def test_any_foreign_text_caps_the_value(question: Question, beside: str) -> None:
    after = verdict(question, question.answer + beside)
    assert after.value < CAP if after.foreign else after.value == verdict(question, question.answer).value


@pytest.mark.parametrize("beside", [text for text in BESIDE if any(char.isalnum() for char in text)])
def test_what_says_something_is_foreign_wherever_it_stands(beside: str) -> None:
    question = TEST[0]
    free, closing = {"您好", "和", "3"}, {"请遵医嘱。", "仅供参考", "/遵医嘱"}  # advice, behind the last quote alone
    for answer in (question.answer + beside, beside + question.answer, question.answer + " " * 9000 + beside):
        is_closing = beside in closing and answer.endswith(beside)
        assert verdict(question, answer).value < CAP or beside in free or is_closing


# The top is the truth


@pytest.mark.long
@SHORT
@given(QUESTIONS, st.data())
def test_the_value_falls_with_every_fact_that_is_missing_replaced_or_denied(
    question: Question, data: st.DataObject
) -> None:
    facts = [fact.forms[0] for fact in exam_of(question).facts if not exam_of(question).names]
    assume(facts)
    order = data.draw(st.permutations(facts))
    values = [verdict(question, "；".join(order[:n])).value for n in range(len(order) + 1)]
    assert values == sorted(values) and values[0] == 0 and values[-1] == 1
    whole, gone = "；".join(order), data.draw(st.integers(0, len(order) - 1))
    for wrong in ("大象无形", f"不{order[gone]}", f"没有{order[gone]}"):
        changed = "；".join([*order[:gone], wrong, *order[gone + 1 :]])
        assert verdict(question, changed).value < min(CAP, verdict(question, whole).value)


@SHORT
@given(QUESTIONS, QUESTIONS)
def test_the_answer_of_another_question_reaches_the_top_only_where_it_is_the_same(
    one: Question, other: Question
) -> None:
    found = verdict(one, other.answer)
    told = normalise(other.answer)
    assert (
        one.answer == other.answer
        or found.value < 0.95
        or all(any(form in told for form in fact.forms) for fact in exam_of(one).facts)
    )


def test_facts_of_one_thing_told_of_the_other_do_not_pay() -> None:
    for question in of_intent(TEST, "compare"):
        first, second = [part for part in question.answer.split("。") if part]
        (a, told_of_a), (b, told_of_b) = first.split("：", 1), second.split("：", 1)
        if set(told_of_a.split("；")) & set(told_of_b.split("；")):
            continue
        assert verdict(question, f"{a}：{told_of_b}。{b}：{told_of_a}。").value < 0.1, question.question


# No look-up, no pay


def mean_reward(strategy: Strategy, questions: Sequence[Question]) -> float:
    """With the bonus for a query."""
    return 0.1 + fmean(value(question, strategy(question)) for question in questions)


@pytest.fixture(scope="module")
def cheats() -> dict[str, float]:
    sample = random.Random(0).sample(TEST, 80)
    tried = hacks(DATA / "medical.db", TEST)
    return {
        name: mean_reward(strategy, of_intent(TEST, MEANT_FOR[name]) if name in MEANT_FOR else sample)
        for name, strategy in tried.items()
    }


@pytest.mark.long
def test_no_paste_of_the_database_pays(cheats: dict[str, float]) -> None:
    assert len([name for name in cheats if name.startswith("SELECT")]) == 6
    for name, mean in cheats.items():
        assert mean <= (0.3 if "SELECT" in name or "reference" in name else 0.15), name


@pytest.mark.long
def test_no_constant_answer_pays() -> None:
    train = random.Random(1).sample(load_questions(DATA / "train.parquet"), 400)
    assert mean_reward(constants(train), TEST) <= 0.25


@SHORT
@given(QUESTIONS)
def test_the_question_again_earns_nothing(question: Question) -> None:
    for answer in (question.question, question.question * 3, " ".join(question.question), question.question[:-1]):
        assert verdict(question, answer).value <= SAME_WORDS


# Quoting pays, in any layout


def test_a_quote_pays_in_any_layout() -> None:
    for name, strategy in honest().items():
        if name != "the first fact alone":
            values = [value(question, strategy(question)) for question in TEST]
            assert sum(v >= 0.9 for v in values) >= 0.95 * len(values), name
            assert name.startswith("the asked cells") or min(values) == 1, name


@SHORT
@given(st.sampled_from(TEST), st.data())
def test_order_and_separators_do_not_matter(question: Question, data: st.DataObject) -> None:
    assume(not exam_of(question).names)
    cells = data.draw(st.permutations([item for cell in asked_cells(question) for item in cell.split("；")]))
    separator = data.draw(st.sampled_from(["；", "、", "\n", "和", "\n- ", " | ", "。", "，以及", "; "]))
    assert verdict(question, separator.join(cells)).value == pytest.approx(1)


def quotes_of(question: Question) -> list[str]:
    """The record and the reference, in layouts."""
    cells = [item.quote for item in question.evidence]
    return [
        *(question.answer, "；".join(cells), "\n".join(f"- **{cell}**" for cell in cells)),
        *("\n".join(f"{n}. {cell}" for n, cell in enumerate(cells, 1)), "。".join(reversed(cells))),
        *("| 序号 | 内容 |\n|---|---|\n" + "\n".join(f"| {n} | {c} |" for n, c in enumerate(cells, 1)),),
        *(f"您好，根据查询结果：{'；'.join(cells)}。希望对您有帮助！", f"综上所述，{question.answer}"),
    ]


def test_a_quote_pays_in_any_layout_where_a_person_wrote_the_reference() -> None:
    values = [verdict(question, quote).value for question in PROSE_QUESTIONS for quote in quotes_of(question)]
    assert len(values) >= 90 and min(values) >= 0.9


def test_full_partial_and_wrong_stand_in_that_order_where_a_person_wrote_the_reference() -> None:
    kinds = {"good": 2, "partial": 1, "wrong": 0}
    told = [
        (kinds[i.kind], verdict(q, i.answer).value, q)
        for q in PROSE_QUESTIONS
        for i in JUDGED_PROSE
        if i.question == q.question and i.kind in kinds
    ]
    pairs = [(a, b) for a, b in combinations(told, 2) if a[2] is b[2] and a[0] != b[0]]
    right = sum((a[0] - b[0]) * (a[1] - b[1]) > 0 for a, b in pairs)
    assert len(pairs) > 90 and right >= 0.95 * len(pairs)


PROSE = (
    "孕妇能服用甲硝唑吗？",
    "根据提供的参考资料，甲硝唑可通过胎盘，妊娠早期禁用，中晚期应权衡利弊后使用。",
    ["本品可迅速通过胎盘；妊娠早期3个月内禁用；妊娠中晚期应权衡利弊后使用；哺乳期用药应暂停哺乳24小时"],
)


@pytest.mark.parametrize("quote", [PROSE[1], PROSE[2][0], "- " + "\n- ".join(PROSE[2][0].split("；")), PROSE[1][10:]])
def test_a_quote_pays_where_the_reference_is_prose(quote: str) -> None:
    found = grade(question=PROSE[0], reference=PROSE[1], answer=quote, evidence=PROSE[2])
    assert found and found.value >= 0.9
    half = grade(question=PROSE[0], reference=PROSE[1], answer="妊娠早期3个月内禁用", evidence=PROSE[2])
    wrong = grade(question=PROSE[0], reference=PROSE[1], answer="孕妇可以放心服用。", evidence=PROSE[2])
    boilerplate = grade(question=PROSE[0], reference=PROSE[1], answer="根据提供的参考资料", evidence=PROSE[2])
    assert half and wrong and boilerplate and found.value > half.value > wrong.value <= SAME_WORDS
    assert boilerplate.value == 0


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=80))
@example("", "4", "4")
@settings(max_examples=200, deadline=None)
def test_any_question_reference_and_answer_are_survived(question: str, reference: str, answer: str) -> None:
    found = grade(question=question, reference=reference, answer=answer, evidence=[answer])
    assert found is None or 0 <= found.value <= 1
    again = grade(question=question, reference=reference, answer=answer, evidence=[answer])
    assert again == found


def test_layout_is_free_and_short() -> None:
    assert len(LAYOUT) < 20 and not any(char.isalnum() for char in LAYOUT)
    assert fmean(verdict(question, "".join(LAYOUT)).value for question in TEST[:50]) == 0
