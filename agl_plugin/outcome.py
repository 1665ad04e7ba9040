"""What the rollouts of a step came to: who is scored, in which groups, what is counted, and who is left out and why.

Guarantees: a rollout without a reward never counts as 0, neither in a group nor in a mean; a group with fewer than two
scored rollouts is not `trainable`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from agl_plugin.audit.facts import REPLACED, SMALL, TOO_OLD, UNSCORED
from agl_plugin.run.ahead import Finished, InFlight
from agl_plugin.run.statistics import no_data, of_rollouts
from foundation.errors import RunError
from foundation.grouping import grouped


@dataclass(frozen=True)
class Outcome:
    """Of the `rollouts`. Those `too_old` do not count as scored; `file` is where people find them."""

    rollouts: InFlight
    too_old: Set[str]
    file: Path

    def question_of(self, rollout_id: str) -> str:
        """The group of a rollout."""
        return self.rollouts.questions[rollout_id]["data_id"]

    @cached_property
    def scored(self) -> dict[str, Finished]:
        """Rollouts with a reward and something to train."""
        finished = self.rollouts.finished.items()
        return {k: r for k, r in finished if r.reward is not None and r.calls and k not in self.too_old}

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """The scored rollouts of each question that has some."""
        return grouped(self.scored, self.question_of)

    @property
    def rewards(self) -> dict[str, list[float]]:
        return {name: [self.scored[i].reward or 0.0 for i in members] for name, members in self.groups.items()}

    @property
    def asked_groups(self) -> list[tuple[dict[str, Any], list[float]]]:
        """Each question that was asked, in the order of the queue, and the rewards of its scored rollouts."""
        questions = {row["data_id"]: row for row in self.rollouts.questions.values()}
        rewards = self.rewards
        return [(question, rewards.get(data_id, [])) for data_id, question in questions.items()]

    def trainable(self, in_batch: Set[str]) -> dict[str, Finished]:
        """The scored rollouts of the groups `in_batch` with at least two of them.

        They stand in the order of the queue, not in that of their ends: it decides which rows share an optimizer step.
        """
        large = {group for group, members in self.groups.items() if len(members) > 1} & in_batch
        scored = self.scored
        return {i: scored[i] for i in self.rollouts.questions if i in scored and self.question_of(i) in large}

    def why_left_out(self, rollout_id: str, in_batch: Set[str]) -> str:
        if rollout_id in self.too_old:
            return TOO_OLD
        if rollout_id not in self.scored:
            return UNSCORED
        return SMALL if self.question_of(rollout_id) in in_batch else REPLACED

    @property
    def unscored(self) -> dict[str, int]:
        """How many have no reward, by reason."""
        return dict(Counter(rollout.unscored for rollout in self.rollouts.finished.values() if rollout.unscored))

    @property
    def counts(self) -> dict[str, float]:
        """Counts and means of the finished rollouts; means are over scored rollouts only."""
        rewards = {name: rollout.reward for name, rollout in self.scored.items()}
        rewarded = [(row, rewards.get(row["rollout_id"])) for row in self.rollouts.rows]
        return of_rollouts(rewarded, n_rollouts=len(self.rollouts.questions), unscored=self.unscored)

    def no_data(self, what: str) -> RunError:
        counts = {"rollouts": len(self.rollouts.questions), "scored": len(self.scored), **self.unscored}
        return no_data(what, self.rollouts.rows, counts=counts, file=self.file)
