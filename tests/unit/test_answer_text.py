"""The parsers of marked answers, on made-up text of any shape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sql_agent.scoring.answer_text import extract_answer, last_boxed, strip_thinking

# Text without a mark of its own; braces and backslashes are the boxes' business.
PLAIN = st.text(alphabet=st.characters(exclude_characters="<>{}\\", exclude_categories=["Cs"]), max_size=12)
MARKS = ["<think>", "</think>", "<answer>", "</answer>", "<ANSWER>", r"\boxed{", r"\fbox {", r"\{", "{", "}", "x", "\n"]
BALANCED = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3).map(lambda parts: "{" + "".join(parts) + "}"))


@given(st.lists(PLAIN, min_size=1, max_size=4), PLAIN)
def test_the_last_answer_counts(answers: list[str], around: str) -> None:
    text = around.join(f"<answer>{answer}</answer>" for answer in answers) + around
    assert extract_answer(text, "answer") == answers[-1].strip()


@given(st.lists(BALANCED, min_size=1, max_size=4), st.sampled_from([r"\boxed{", r"\fbox{", r"\boxed {"]), PLAIN)
def test_the_last_box_counts_with_its_nested_braces(contents: list[str], opening: str, around: str) -> None:
    text = around.join(f"{opening}{content}}}" for content in contents) + around
    assert extract_answer(text, "boxed") == contents[-1].strip()


@given(BALANCED, BALANCED)
def test_a_box_in_a_box(outer: str, inner: str) -> None:
    assert last_boxed(rf"\boxed{{{outer}\fbox{{{inner}}}}}") == inner.strip()


@given(PLAIN, PLAIN)
def test_what_was_thought_is_not_answered(thought: str, said: str) -> None:
    text = rf"<think>{thought}<answer>1</answer>\boxed{{2}}</think>{said}"
    assert strip_thinking(text) == said.strip()
    assert extract_answer(text, "answer") == extract_answer(text, "boxed") == ""


@given(st.lists(st.sampled_from(MARKS), max_size=40))
def test_any_mix_of_marks_is_survived(parts: list[str]) -> None:
    text = "".join(parts)
    said = strip_thinking(text)
    assert "<think>" not in said
    for schema in ("answer", "boxed"):
        found = extract_answer(text, schema)
        assert found in said and found == found.strip()


@given(st.text())
def test_without_a_schema_the_answer_is_what_was_said(text: str) -> None:
    assert extract_answer(text, "") == strip_thinking(text)


@pytest.mark.parametrize("text", [r"\boxed{1", r"\boxed1}", r"\ boxed{1}", "boxed{1}", r"\boxed", r"}\boxed{", "{}"])
def test_half_a_box_is_none(text: str) -> None:
    assert extract_answer(text, "boxed") == ""
