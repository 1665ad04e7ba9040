"""The math recipe: its problems are solved by their calls, its splits share nothing, its calculator is a calculator."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from recipes.math_cpu.problems import CALLS, HERE, KINDS, SIZES, WORDINGS, make, numbers_of, split
from recipes.math_cpu.tiny import ALWAYS_ADDS, ONE_STEP, PROMPT, TASK, TOO_EARLY, TOOLS, MathTeacher, worked_out
from recipes.math_cpu.tools import calculate
from sql_agent.config import build_config, load_recipe
from sql_agent.environment.sandbox.rules import Output, Rules, run
from sql_agent.tiny_policy.task import load_task
from sql_agent.tiny_policy.tokenizer import train_tokenizer


@pytest.fixture(scope="module")
def splits() -> dict[str, list[dict[str, Any]]]:
    return {name: split(name) for name in SIZES}


def test_the_stored_files_are_what_the_seed_gives(splits: dict[str, list[dict[str, Any]]]) -> None:
    for name, rows in splits.items():
        stored = [json.loads(line) for line in (HERE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        assert stored == rows, "run python -m recipes.math_cpu.problems"
    assert split("val", seed=2) != splits["val"]


def test_no_entity_and_no_question_is_on_two_sides(splits: dict[str, list[dict[str, Any]]]) -> None:
    for what in ("who_name", "things_name"):
        owners = [{row["meta"]["entity"][what] for row in rows} for rows in splits.values()]
        assert sum(map(len, owners)) == len(set.union(*owners))
    every = [row["question"] for rows in splits.values() for row in rows]
    assert len(every) == len(set(every)) == sum(SIZES.values())


@pytest.mark.parametrize("kind", KINDS)
def test_the_call_of_a_problem_gives_its_answer(kind: str) -> None:
    rng, rules = random.Random(1), Rules([])
    for _ in range(200):
        problem = make(kind, WORDINGS[kind][0], rng, who="A", things="bs", place="c")
        assert all(0 < number < 100 for number in problem.numbers) and problem.answer >= 0
        if problem.call.tool == "calculate":
            assert calculate(problem.call.text) == str(problem.answer)
        else:
            output = Output()
            run(problem.call.text, rules, output)
            assert output.text.strip() == str(problem.answer)


def test_numbers_stand_in_the_question_once_each() -> None:
    rng = random.Random(2)
    for kind in KINDS:
        for wording in WORDINGS[kind]:
            problem = make(kind, wording, rng, who="A", things="bs", place="c")
            assert sorted(map(int, re.findall(r"\d+", problem.question))) == sorted(problem.numbers)
            assert len(set(problem.numbers)) == len(problem.numbers)
    assert numbers_of("sum", random.Random(3)) == numbers_of("sum", random.Random(3))


@pytest.mark.parametrize(
    ("expression", "value"),
    [("1+2", "3"), ("(12+7)*3", "57"), ("-3 - -4", "1"), ("7/2", "3.5"), ("0.1+0.2", "0.3"), ("1/3", "0.3333333333")],
)
def test_the_calculator_is_exact(expression: str, value: str) -> None:
    assert calculate(expression) == value


NO_ARITHMETIC = ["", "1+", "2**9", "9//2", "abs(1)", "().__class__", "a", "'a'*9", "1 if 1 else 2", "1j", "True", "[1]"]
NO_ARITHMETIC += ["1;2", "1=1", "(" * 150, "9" * 201, "1e99", "9999999999*" * 15 + "1", "lambda: 1", "1 < 2", "f'{1}'"]


@pytest.mark.parametrize("expression", [*NO_ARITHMETIC, "1/0"])
def test_what_is_no_arithmetic_is_refused(expression: str) -> None:
    with pytest.raises((ValueError, ZeroDivisionError)):
        calculate(expression)


def chats(*, flawed: bool, n: int = 3000) -> list[list[dict[str, Any]]]:
    teacher = MathTeacher(random.Random(5), flawed)
    return [teacher.demonstrate() for _ in range(n)]


def solved(chat: list[dict[str, Any]]) -> bool:
    """True where the call works the question out, known by its numbers and the words of its kind."""
    numbers = tuple(map(int, re.findall(r"\d+", chat[1]["content"])))
    (text,) = chat[2]["tool_calls"][0]["function"]["arguments"].values()
    kind = next(k for k in KINDS for w in WORDINGS[k] if re.fullmatch(_pattern(w), chat[1]["content"]))
    return any(CALLS[kind](*order).text == text for order in (numbers, numbers[::-1], (*numbers[1::-1], *numbers[2:])))


def _pattern(wording: str) -> str:
    return re.sub(r"\\\{[abc]\\\}", r"\\d+", re.sub(r"\\\{(who|things|place)\\\}", r"\\w+", re.escape(wording)))


def test_the_teacher_errs_as_often_as_told_and_answers_with_what_the_tool_gave() -> None:
    clean, flawed = chats(flawed=False), chats(flawed=True)
    assert all(map(solved, clean))
    right = sum(map(solved, flawed)) / len(flawed)
    wanted = (1 + 3 * (1 - ALWAYS_ADDS) + (1 - ONE_STEP) + (1 - TOO_EARLY)) / len(KINDS)
    assert abs(right - wanted) < 0.04
    for chat in [*clean[:200], *flawed[:200]]:
        assert chat[4]["content"] == f"#### {chat[3]['content']}"


def test_no_held_out_wording_and_no_entity_is_shown(splits: dict[str, list[dict[str, Any]]]) -> None:
    asked = [chat[1]["content"] for chat in chats(flawed=False, n=500)]
    held_out = [_pattern(wordings[-1]) for wordings in WORDINGS.values()]
    assert not [text for text in asked for pattern in held_out if re.fullmatch(pattern, text)]
    names = {row["meta"]["entity"]["who_name"] for rows in splits.values() for row in rows}
    assert Counter(word for text in asked for word in text.split() if word in names).total() < 5  # made up by chance


def test_the_lessons_text_is_what_the_agent_sends() -> None:
    config = build_config(load_recipe("math_cpu"))
    task = load_task(config.model.tiny)
    assert task.name == TASK.name and config.agent.tools[0] == "python"
    lesson = task.learn()
    tokenizer: PreTrainedTokenizerFast = train_tokenizer(lesson.texts, lesson.frames)
    tools: list[Any] = TOOLS
    chat = MathTeacher(random.Random(1), False).demonstrate()
    text = tokenizer.apply_chat_template(chat, tools=tools, tokenize=False)
    assert isinstance(text, str) and PROMPT.read_text(encoding="utf-8").strip() in text
    for number in ("7", "12", "99"):
        assert len(tokenizer.encode(number, add_special_tokens=False)) == 1
    for frame in lesson.frames:
        assert len(tokenizer.encode(frame, add_special_tokens=False)) == 1
    assert worked_out(CALLS["share"](56, 8)) == "7" and Fraction(calculate("56/8")) == 7
