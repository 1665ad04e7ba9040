"""Answers that get 0 without a call, and those that must not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_client.gates import why_zero
from reward_client.prompting import PROMPTS, load_prompt

QUESTION = "氨氯地平用于高血压吗？"


@pytest.mark.parametrize("answer", ["", " \n", "：", "...", "Solution", "解答：", "Thought process:", "\ud800", "🙂"])
def test_an_answer_without_content_is_zero(answer: str) -> None:
    assert why_zero(question=QUESTION, answer=answer)


@pytest.mark.parametrize("around", ["{}", "{} {} {}", "问题：{}", "Question: {}", "您的问题是：“{}”", "**{}**"])
def test_the_question_again_is_zero(around: str) -> None:
    assert "repeats the question" in why_zero(question=QUESTION, answer=around.replace("{}", QUESTION))


@pytest.mark.parametrize("name", sorted(path.stem for path in PROMPTS.glob("*.txt")))
def test_the_rubric_is_zero_whole_and_in_part(name: str) -> None:
    rubric = load_prompt(name)
    for text in (rubric, rubric[100:300], rubric.upper(), f"满分。{rubric}"):
        assert "rubric" in why_zero(question=QUESTION, answer=text, rubric=rubric)


@pytest.mark.parametrize(
    "answer",
    [
        "是",
        "3",
        "no",
        f"{QUESTION}是。",
        f"{QUESTION}{QUESTION}是",
        f"问题：{QUESTION}问",
        "氨氯地平用于高血压。",
        "解答：用于高血压",
        "可以。氨氯地平用于高血压吗？可以。",
        "准确：高血压",
    ],
)
def test_an_answer_with_content_goes_to_the_judge(answer: str) -> None:
    assert not why_zero(question=QUESTION, answer=answer, rubric=load_prompt("rubric_zh"))


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_is_survived_and_a_long_answer_is_fast(question: str, answer: str) -> None:
    why_zero(question=question, answer=answer * 1000, rubric="x" * 5000)
