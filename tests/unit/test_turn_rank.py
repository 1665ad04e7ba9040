"""Turns as a part of the reward: the term turn_rank within a group, and agent.min_turns."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import UserError
from foundation.rollout_keys import AWAITS_GROUP
from sql_agent.agent.grading import scoring_of
from sql_agent.config import build_config
from sql_agent.records import Episode, Question, Reward, rollout_record
from sql_agent.scoring.groups import GroupGrader
from sql_agent.scoring.reward import TOO_FEW_TURNS, score

TERMS = [{"scorer": "exact"}, {"scorer": "turn_rank", "weight": 0.2}]
CONFIG = build_config({"reward": {"terms": TERMS, "judge": {"kind": "reference"}}})
RIGHT, WRONG = "5", "6"


def graded(answer: str, n_turns: int, *, config: Any = CONFIG, in_group: bool = True) -> Reward:
    question = Question(id="q", question="2 + 3?", answer=RIGHT)
    episode = Episode(question=question, final_answer=answer, n_turns=n_turns)
    context = scoring_of(config)
    with_group = type(context)(**{**vars(context), "in_group": in_group})
    return asyncio.run(score(episode, with_group))


def group(*played: tuple[str, int]) -> list[dict[str, Any]]:
    """The records of a group after its grading, which travels to another process first."""
    question = Question(id="q", question="2 + 3?", answer=RIGHT)
    records = [
        rollout_record(question, Episode(question=question, final_answer=answer, n_turns=n), graded(answer, n))
        for answer, n in played
    ]
    rows = [record.model_dump() for record in records]
    grader = pickle.loads(pickle.dumps(GroupGrader(None, "pointwise", CONFIG.reward)))
    return [row | change for row, change in zip(rows, asyncio.run(grader(rows)), strict=True)]


def test_fewer_turns_of_a_right_answer_earn_more_and_wrong_answers_nothing() -> None:
    rows = group((RIGHT, 2), (RIGHT, 5), (WRONG, 1), (RIGHT, 3))
    assert [row["reward_parts"]["turn_rank"] for row in rows] == pytest.approx([0.2, -0.2, 0.0, 0.0])
    assert [row["reward"] for row in rows] == pytest.approx([1.2, 0.8, 0.0, 1.0])
    assert {row["unscored"] for row in rows} == {""} and not any(row["awaits"] for row in rows)


@pytest.mark.long
@given(st.lists(st.tuples(st.sampled_from([RIGHT, WRONG]), st.integers(1, 6)), min_size=1, max_size=6))
def test_the_part_adds_up_to_nothing_and_never_makes_a_wrong_answer_better(played: list[tuple[str, int]]) -> None:
    rows = group(*played)
    assert sum(row["reward_parts"]["turn_rank"] for row in rows) == pytest.approx(0.0, abs=1e-9)
    by_answer = {
        said: [row["reward"] for row, (answer, _) in zip(rows, played, strict=True) if answer == said]
        for said in (RIGHT, WRONG)
    }
    assert min(by_answer[RIGHT], default=1.0) > max(by_answer[WRONG], default=0.0)
    for row, (answer, n) in zip(rows, played, strict=True):
        for other, (its_answer, m) in zip(rows, played, strict=True):
            if answer == its_answer == RIGHT and n < m:
                assert row["reward"] > other["reward"]


def test_without_a_group_turns_are_not_compared() -> None:
    assert graded(RIGHT, 4).unscored == AWAITS_GROUP
    assert graded(RIGHT, 4, in_group=False).parts == {"sql": 0.0, "exact": 1.0, "turn_rank": 0.0}


def test_an_unscored_member_is_left_alone() -> None:
    question = Question(id="q", question="2 + 3?", answer=RIGHT)
    fault = rollout_record(question, None, Reward(unscored="llm_fault")).model_dump()
    (change,) = asyncio.run(GroupGrader(None, "pointwise", CONFIG.reward)([fault]))
    assert change == {}


@pytest.mark.parametrize(
    "terms", [[{"scorer": "turn_rank"}], [{"scorer": "turn_rank"}, {"scorer": "length_penalty", "target": 9}]]
)
def test_turns_alone_are_no_reward(terms: list[dict[str, Any]]) -> None:
    with pytest.raises(UserError, match="look at how an answer was found"):
        build_config({"reward": {"terms": terms}})
    with pytest.raises(UserError, match="make it one of reward.terms"):
        scoring_of(build_config({"reward": {"default_scorer": "turn_rank"}}))


def test_a_right_answer_after_too_few_turns_is_left_out_in_training_alone() -> None:
    settings = {"agent": {"min_turns": 3}, "reward": {"default_scorer": "exact", "sql_bonus": 0.0}}
    config = build_config(settings)
    guessed = graded(RIGHT, 2, config=config)
    assert (guessed.unscored, guessed.total) == (TOO_FEW_TURNS, None)
    assert graded(RIGHT, 3, config=config).total == 1.0 and graded(WRONG, 1, config=config).total == 0.0
    assert graded(RIGHT, 2, config=config, in_group=False).total == 1.0
    with pytest.raises(UserError, match="min_turns = 7 must not exceed agent.max_turns = 6"):
        build_config({"agent": {"min_turns": 7}})
