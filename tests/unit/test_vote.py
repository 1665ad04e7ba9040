"""Which of several samples a vote by result sets chooses."""

from __future__ import annotations

from typing import Any

import pytest

from sql_agent.evaluation.plan import voted
from sql_agent.records import QueryResult, SqlCall, TrialRecord
from sql_agent.scoring.vote import choose


def sample(n: int, *results: Any, logprob: float | None = None, question: str = "q") -> TrialRecord:
    """`results`: rows, or None for a query that failed."""
    calls = [
        SqlCall(sql="SELECT 1", result=QueryResult(error="x") if rows is None else QueryResult(rows=rows))
        for rows in results
    ]
    costs = {"prompt_tokens": 10, "completion_tokens": n, "episode_s": 0.5}
    return TrialRecord(question_id=question, sample=n, sql_calls=calls, logprob=logprob, **costs)


A, A_TURNED, B, C = [[1, "x"], [2, "y"]], [["y", 2.0], ["x", 1]], [[3, "z"]], [[4, "w"]]


@pytest.mark.parametrize(
    ("samples", "chosen"),
    [
        ([sample(0, B), sample(1, A), sample(2, A_TURNED)], 1),  # columns and rows in any order
        ([sample(0, B, logprob=-9), sample(1, A, logprob=-2), sample(2, C, logprob=-5)], 1),  # a tie of results
        ([sample(0, A, logprob=-3), sample(1, B, logprob=-1), sample(2, A, logprob=-2)], 2),  # a tie within one
        ([sample(0, A), sample(1, B)], 0),  # nothing told: the first
        ([sample(0, A, logprob=None), sample(1, B, logprob=-99)], 1),
        ([sample(0, None), sample(1, None), sample(2, A)], 2),  # what did not run has no ballot
        ([sample(0), sample(1)], 0),
        ([sample(0, A, B), sample(1, A, None), sample(2, B)], 0),  # the last query that ran
        ([sample(0, []), sample(1, []), sample(2, A)], 0),  # an empty result is a result
    ],
)
def test_the_choice(samples: list[TrialRecord], chosen: int) -> None:
    assert choose(samples).sample == chosen


def test_the_reward_has_no_say() -> None:
    good = sample(0, A).model_copy(update={"reward": 1.0, "execution_match": 1.0})
    assert choose([good, sample(1, B), sample(2, B)]).sample == 1


def test_a_vote_costs_what_all_samples_cost() -> None:
    records = [sample(n, A) for n in range(4)] + [sample(n, B, question="p") for n in range(2)]
    (found,) = voted(records[::-1], 3)
    assert (found.question_id, found.sample) == ("q", 0)
    assert (found.prompt_tokens, found.completion_tokens, found.episode_s) == (30, 0 + 1 + 2, 1.5)
    untold = [record.model_copy(update={"prompt_tokens": None}) for record in records[:3]]
    assert voted(untold, 3)[0].prompt_tokens is None
