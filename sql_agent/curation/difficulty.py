"""How hard questions are for a model, from the trials of an evaluation: what always or never succeeds teaches nothing.

GRPO learns from differences within a group, so a question is kept whose sampled episodes earned different rewards.
Guarantees: trials that a fault ended count neither way; a question with fewer than two scored samples is unmeasured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from foundation.grouping import grouped
from sql_agent.evaluation.stats import best_of
from sql_agent.records import TrialRecord

LEAST_DIFFERENCE = 1e-6


@dataclass(frozen=True)
class Difficulty:
    """Sampled rewards of one question. `passed` counts those whose answer score reached the threshold."""

    rewards: tuple[float, ...]
    passed: int

    def pass_at(self, k: int) -> float:
        """The chance that at least one of k samples passes: unbiased, for k up to the number of samples."""
        return best_of([place < self.passed for place in range(len(self.rewards))], k)


def measure(records: Iterable[TrialRecord], *, threshold: float) -> dict[str, Difficulty]:
    """Question id -> difficulty, for questions with two scored samples or more."""
    scored = (record for record in records if record.decoding == "sampled" and record.reward is not None)
    return {
        question: Difficulty(
            tuple(record.reward for record in samples if record.reward is not None),
            sum((record.answer_score or 0.0) >= threshold for record in samples),
        )
        for question, samples in grouped(scored, lambda record: record.question_id).items()
        if len(samples) > 1
    }


def why_dropped(difficulty: Difficulty) -> str:
    """Why a question is not worth training on, or ""."""
    if max(difficulty.rewards) - min(difficulty.rewards) > LEAST_DIFFERENCE:
        return ""
    return f"all {len(difficulty.rewards)} samples earned {difficulty.rewards[0]:.3g} ({difficulty.passed} passed)"


def histogram(difficulties: Sequence[Difficulty]) -> dict[str, int]:
    """Questions by how many of their samples passed."""
    easier_last = sorted(difficulties, key=lambda difficulty: difficulty.passed / len(difficulty.rewards))
    return dict(Counter(f"{difficulty.passed} of {len(difficulty.rewards)}" for difficulty in easier_last))
