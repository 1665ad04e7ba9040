"""Voting: of k samples of a question, the one whose result set most of them found.

A sample's ballot is the result of its last query that ran, as far as the agent was shown it: two are the same under the
rule of result_match.py, in any order of rows. Without a query that ran there is no ballot. Where result sets have
equally many ballots, and within one, the sample that the model found most probable wins (the log-probability of all its
tokens; where the server tells none, the first). Guarantees: no reward and no reference is looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sql_agent.records import QueryResult, TrialRecord
from sql_agent.scoring.result_match import same_results


def voted(records: Sequence[TrialRecord], k: int) -> list[TrialRecord]:
    """The chosen record of each question that has k samples, with the tokens and seconds of all k."""
    questions: dict[str, list[TrialRecord]] = defaultdict(list)
    for record in sorted(records, key=lambda one: one.sample):
        questions[record.question_id].append(record)
    return [_with_cost(choose(found[:k]), found[:k]) for found in questions.values() if len(found) >= k]


def choose(samples: Sequence[TrialRecord]) -> TrialRecord:
    """The winner of one question."""
    classes: list[list[TrialRecord]] = []
    for sample in samples:
        found = next((one for one in classes if _agree(one[0], sample)), None)
        if found is not None:
            found.append(sample)
        elif _ballot(sample):
            classes.append([sample])
    classes = classes or [list(samples)]
    most = max(map(len, classes))
    return max((sample for one in classes if len(one) == most for sample in one), key=_probability)


def _ballot(record: TrialRecord) -> QueryResult | None:
    return next((call.result for call in reversed(record.sql_calls) if call.result.ok), None)


def _agree(one: TrialRecord, other: TrialRecord) -> bool:
    left, right = _ballot(one), _ballot(other)
    if left is None or right is None or left.truncated != right.truncated:
        return False
    return same_results(left.rows, right.rows, ordered=False)


def _probability(record: TrialRecord) -> float:
    return float("-inf") if record.logprob is None else record.logprob


def _with_cost(chosen: TrialRecord, samples: Sequence[TrialRecord]) -> TrialRecord:
    """The chosen record, whose cost is that of all that voted."""
    costs = {
        name: None if None in (told := [getattr(one, name) for one in samples]) else sum(told)
        for name in ("prompt_tokens", "completion_tokens", "episode_s")
    }
    return chosen.model_copy(update=costs)
