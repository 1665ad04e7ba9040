"""Voting: of k samples of a question, the one whose result set most of them found.

A sample's ballot is the result of its last query that ran, as far as the agent was shown it: two are the same under the
rule of result_match.py, in any order of rows. Without a query that ran there is no ballot. Where result sets have
equally many ballots, and within one, the sample that the model found most probable wins (the log-probability of all its
tokens; where the server tells none, the first). Guarantees: no reward and no reference is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from sql_agent.records import QueryResult, SqlCall
from sql_agent.scoring.result_match import same_results


class Sample(Protocol):
    """What votes: its queries, and the log-probability of all its tokens (None: not told)."""

    @property
    def sql_calls(self) -> Sequence[SqlCall]: ...

    @property
    def logprob(self) -> float | None: ...


def choose[T: Sample](samples: Sequence[T]) -> T:
    """The winner of one question."""
    classes: list[list[T]] = []
    for sample in samples:
        alike = next((members for members in classes if _agree(members[0], sample)), None)
        if alike is not None:
            alike.append(sample)
        elif _ballot(sample):
            classes.append([sample])
    classes = classes or [list(samples)]
    most = max(map(len, classes))
    candidates = [sample for members in classes if len(members) == most for sample in members]
    return max(candidates, key=lambda sample: -math.inf if sample.logprob is None else sample.logprob)


def _ballot(record: Sample) -> QueryResult | None:
    return next((call.result for call in reversed(record.sql_calls) if call.result.ok), None)


def _agree(sample: Sample, other: Sample) -> bool:
    left, right = _ballot(sample), _ballot(other)
    if left is None or right is None or left.truncated != right.truncated:
        return False
    return same_results(left.rows, right.rows, ordered=False)
