"""Rewards that are given to a whole group at once, on the algorithm's side, as soon as its last rollout has finished.

A runner grades each rollout by itself and cannot rank; it marks such a rollout AWAITS_GROUP and gives it no reward.
Guarantees: a rollout that the grader leaves without a reward, or that nobody grades, stays unscored and is never a 0.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from agl_plugin.run.ahead import Finished
from foundation.rollout_keys import AWAITS_GROUP, GradeGroup


@dataclass
class GroupRewards:
    """The groups of one step. `rows` and `rollouts`, by rollout id, are changed in place.

    `n_open`: how many rollouts of each group have not finished. Without `grade` what awaits its group stays unscored.
    """

    grade: GradeGroup | None
    rows: list[dict[str, Any]]
    rollouts: dict[str, Finished]
    n_open: dict[str, int]
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def finished(self, group: str) -> None:
        """One more rollout of `group` has finished; after the last one its grading starts."""
        self.n_open[group] -= 1
        rows = [row for row in self.rows if row["group"] == group]
        if self.grade and self.n_open[group] == 0 and any(row["unscored"] == AWAITS_GROUP for row in rows):
            self._tasks.append(asyncio.create_task(self._reward(rows, self.grade)))

    async def all_graded(self) -> None:
        """Wait for the gradings under way."""
        await asyncio.gather(*self._tasks)

    async def _reward(self, rows: list[dict[str, Any]], grade: GradeGroup) -> None:
        changes = await grade(rows)
        for row, change in zip(rows, changes, strict=True):
            if row["unscored"] != AWAITS_GROUP:
                continue
            row |= change
            rollout = self.rollouts[row["rollout_id"]]
            rollout.unscored = row["unscored"]
            if not row["unscored"]:
                rollout.reward = row["reward"]
