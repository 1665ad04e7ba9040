"""Rewards that are given to a whole group at once, on the algorithm's side, as soon as its last rollout has finished.

A runner grades each rollout by itself and cannot rank; it marks such a rollout AWAITS_GROUP and gives it no reward.
Guarantees: a rollout that the grader leaves without a reward, or that nobody grades, stays unscored and is never a 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from agentlightning.types import RolloutLegacy

from foundation.rollout_keys import AWAITS_GROUP, GradeGroup


class GroupRewards:
    """The groups of one step. `rows` and `rollouts`, by rollout id, are changed in place."""

    def __init__(
        self,
        grade: GradeGroup,
        rows: list[dict[str, Any]],
        rollouts: dict[str, RolloutLegacy],
        open_: Mapping[str, int],
    ) -> None:
        self._grade = grade
        self._rows = rows
        self._rollouts = rollouts
        self._open = dict(open_)
        self._tasks: list[asyncio.Task[None]] = []

    def finished(self, group: str) -> None:
        """One more rollout of `group` has finished; after the last one its grading starts."""
        self._open[group] -= 1
        rows = [row for row in self._rows if row["group"] == group]
        if self._open[group] == 0 and any(row["unscored"] == AWAITS_GROUP for row in rows):
            self._tasks.append(asyncio.create_task(self._reward(rows)))

    async def all_graded(self) -> None:
        """Wait for the gradings under way."""
        await asyncio.gather(*self._tasks)

    async def _reward(self, rows: list[dict[str, Any]]) -> None:
        changes = await self._grade(rows)
        for row, change in zip(rows, changes, strict=True):
            if row["unscored"] != AWAITS_GROUP:
                continue
            row |= change
            rollout = self._rollouts[row["rollout_id"]]
            rollout.metadata = {**(rollout.metadata or {}), "unscored": row["unscored"]}
            if not row["unscored"]:
                rollout.final_reward = row["reward"]
                triplets = rollout.triplets or []
                rollout.triplets = [*triplets[:-1], triplets[-1].model_copy(update={"reward": row["reward"]})]
