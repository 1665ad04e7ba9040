"""Voting in an evaluation: of k samples of a question, the one that scoring/vote.py chooses, at the cost of all k."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sql_agent.records import TrialRecord
from sql_agent.scoring.vote import choose


def voted(records: Sequence[TrialRecord], k: int) -> list[TrialRecord]:
    """The chosen record of each question that has k samples, with the tokens and seconds of all k."""
    questions: dict[str, list[TrialRecord]] = defaultdict(list)
    for record in sorted(records, key=lambda trial: trial.sample):
        questions[record.question_id].append(record)
    return [_with_cost(choose(samples[:k]), samples[:k]) for samples in questions.values() if len(samples) >= k]


def _with_cost(chosen: TrialRecord, samples: Sequence[TrialRecord]) -> TrialRecord:
    """The chosen record, whose cost is that of all that voted."""
    costs = {
        name: None if None in (values := [getattr(sample, name) for sample in samples]) else sum(values)
        for name in ("prompt_tokens", "completion_tokens", "episode_s")
    }
    return chosen.model_copy(update=costs)
