"""Estimates, pairing and counting of the evaluation; the episodes themselves are in tests/wire/test_evaluate.py."""

from __future__ import annotations

import random
from statistics import fmean
from typing import Any

import pytest

from sql_agent.evaluation import by_question, compare, draw, estimate, summarize
from sql_agent.records import Question


def record(question: str, reward: float | None, *, task: str = "t", rows: int = 1) -> dict[str, Any]:
    calls = [{"result": {"error": None, "rows": [[1]] * rows}}]
    parts = {"sql": 0.1, "answer": reward - 0.1} if reward is not None else {}
    return {
        **{"question_id": question, "task_type": task, "reward": reward, "reward_parts": parts, "sql_calls": calls},
        **{"n_turns": 2, "episode_s": 0.5, "unscored": "" if reward is not None else "judge_down"},
    }


def test_the_interval_covers_the_true_mean_about_95_times_of_100() -> None:
    rng = random.Random(1)
    inside = 0
    for _ in range(200):
        found = estimate([rng.random() for _ in range(60)])
        assert found.low <= found.mean <= found.high
        inside += found.low <= 0.5 <= found.high
    assert 0.88 <= inside / 200 <= 0.99


def test_the_interval_is_reproducible_and_shrinks_with_n() -> None:
    values = [random.Random(2).random() for _ in range(400)] + [0.0, 1.0]
    assert estimate(values) == estimate(values)
    few, many = estimate([0.0, 1.0] * 5), estimate([0.0, 1.0] * 500)
    assert many.high - many.low < (few.high - few.low) / 5
    assert str(estimate([])) == "-"


def test_samples_of_a_question_count_as_one_question() -> None:
    records = [record("a", 1.0)] * 9 + [record("b", 0.0)]
    assert by_question(records, "reward") == {"a": 1.0, "b": 0.0}
    assert summarize(records)["measures"]["reward"]["mean"] == 0.5


def test_a_fault_is_left_out_and_counted() -> None:
    found = summarize([record("a", 0.6), record("a", None), record("b", None)])
    assert found["unscored"] == {"judge_down": 2} and found["trials"] == 3
    assert found["measures"]["reward"]["mean"] == pytest.approx(0.6) and found["measures"]["reward"]["n"] == 1


def test_two_models_are_compared_question_by_question() -> None:
    rng = random.Random(3)
    hard = {f"q{i}": rng.random() for i in range(80)}
    before = [record(q, value) for q, value in hard.items()] + [record("only-before", 1.0)]
    after = [record(q, value + 0.05) for q, value in hard.items()] + [record("only-after", 0.0)]
    found = compare(before, after)
    assert found.n == 80 and found.low == pytest.approx(0.05) and found.high == pytest.approx(0.05)
    apart = estimate(hard.values())
    assert apart.high - apart.low > 0.1  # unpaired, the difference would drown


def test_reward_by_task_type() -> None:
    found = summarize([record("a", 1.0, task="x"), record("b", 0.2, task="y")])["reward_by_task"]
    assert {task: value["mean"] for task, value in found.items()} == {"x": 1.0, "y": 0.2}


def test_a_draw_is_seeded_and_keeps_the_order() -> None:
    questions = [Question(id=str(i), question=f"{i}?") for i in range(100)]
    drawn = draw(questions, 10)
    assert drawn == draw(questions, 10) and len(drawn) == 10
    assert [int(q.id) for q in drawn] == sorted(int(q.id) for q in drawn)
    assert draw(questions, 0) == draw(questions, 500) == questions
    assert fmean(int(q.id) for q in draw(questions, 50)) != 24.5
