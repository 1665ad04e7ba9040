"""What the rollouts of a step came to, for both back ends: who is scored, in which groups, what is counted, who is left
out and why, and the rows that are learned from.

Guarantees: a rollout without a reward never counts as 0, neither in a group nor in a mean; a group with fewer than two
scored rollouts is not `trainable`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from agl_plugin.audit.facts import REPLACED, SMALL, TOO_OLD, UNSCORED, Batched, rollout_rows
from agl_plugin.audit.log import AuditLog
from agl_plugin.audit.stored import StoredRollout
from agl_plugin.run.ahead import Finished, InFlight
from agl_plugin.run.resampling import Places
from agl_plugin.run.statistics import no_data, of_groups, of_rollouts
from agl_plugin.update.batch import Batch, build_batch
from agl_plugin.update.phases import phases_of
from agl_plugin.update.rows import Limits
from foundation.errors import RunError
from foundation.files import append_lines
from foundation.grouping import grouped
from foundation.run_folder import ROLLOUTS


def as_played(rollouts: Sequence[StoredRollout]) -> InFlight:
    """Those that a finished run stored, as if they had been played."""
    return InFlight(
        {i.seen.rollout_id: {**i.seen.question, "data_id": i.record["group"]} for i in rollouts},
        {i.seen.rollout_id: Finished(i.reward, i.record["unscored"], i.seen.calls) for i in rollouts},
        [i.record for i in rollouts],
        [i.seen for i in rollouts],
    )


@dataclass(frozen=True)
class Outcome:
    """Of the `rollouts`. Those `too_old` do not count as scored; they are written down in `run_dir`."""

    rollouts: InFlight
    run_dir: Path
    too_old: Set[str] = frozenset()

    def write_down(self, audit: AuditLog | None, *, step: int) -> None:
        """All rollouts, in rollouts.jsonl and the audit."""
        rows, seen = self.rollouts.rows, self.rollouts.seen
        append_lines(self.run_dir / ROLLOUTS, rows)
        if audit:
            records = {row["rollout_id"]: row for row in rows}
            audit.add(lambda: rollout_rows(seen, records, run_id=audit.run_id), step=step)

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

    def counts_of_step(self, places: Places) -> dict[str, float]:
        """The same with those of groups, some of which took the places of others."""
        replaced = {"resampled_groups": places.tried, "replaced_groups": places.replaced}
        return self.counts | of_groups(self.rewards.values()) | replaced

    def batch(
        self, places: Places, limits: Limits, *, merge: bool, pad_id: int, by_turn: bool, step: int
    ) -> tuple[Batch, Batched]:
        """The rows of the rollouts that can be learned from, and what becomes of each rollout.

        With `by_turn` they have the phases of their turns. Raises RunError with the likely causes when there are none.
        """
        trainable = self.trainable(places.in_batch)
        if not trainable:
            raise self.no_data(f"step {step}: no question has two scored rollouts to compare")
        phases = None
        if by_turn:
            rows = {row["rollout_id"]: row for row in self.rollouts.rows}
            phases = {i: phases_of(rows[i], len(r.calls), reward=r.reward or 0.0) for i, r in trainable.items()}
        rollouts = {i: (self.question_of(i), r.reward or 0.0, r.calls) for i, r in trainable.items()}
        batch = build_batch(
            rollouts,
            merge=merge,
            max_prompt_tokens=limits.prompt_tokens,
            max_response_tokens=limits.response_tokens,
            pad_id=pad_id,
            phases=phases,
        )
        left_out = {i: self.why_left_out(i, places.in_batch) for i in self.rollouts.questions if i not in trainable}
        return batch, Batched(batch.rows, limits, left_out)

    def no_data(self, what: str) -> RunError:
        counts = {"rollouts": len(self.rollouts.questions), "scored": len(self.scored), **self.unscored}
        return no_data(what, self.rollouts.rows, counts=counts, file=self.run_dir / ROLLOUTS)
