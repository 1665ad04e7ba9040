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
from agl_plugin.run.resampling import is_flat
from agl_plugin.run.statistics import of_rollouts, reward_by_agent
from foundation.errors import RunError
from foundation.grouping import grouped
from foundation.rollout_keys import TIMED_OUT, TOOL_FAULT, told_tools

NO_TRAINING_DATA = """{what}. Why:
{causes}
Seen in this step: {counts}{first}. Each rollout with its reason: {rollouts}"""
BROKEN_TOKEN_IDS = "broken_token_ids"
# What stands behind a reason; of others the record of the rollout says more.
CAUSES = {
    "no_token_ids": "the model server gave no token ids: it must be vLLM behind the LLM proxy",
    BROKEN_TOKEN_IDS: "spans of LLM calls go on from calls whose spans are lost or changed (train.log names them)",
    "llm_fault": "calls of the model failed: the model server, or the LLM proxy before it, was down or refused them",
    "agent_error": "the agent raised, or its runner could not reach the store: see the runner's log",
    TIMED_OUT: "rollouts took longer than rollout.rollout_timeout_s",
}
OTHER_CAUSE = "a fault of that kind ended them: {first}"


@dataclass(frozen=True)
class Outcome:
    """Of these rollouts. Those `too_old` do not count as scored; `file` is where people find them."""

    these: InFlight
    too_old: Set[str]
    n_queued: int
    file: Path

    def question_of(self, rollout_id: str) -> str:
        """The group of a rollout."""
        return self.these.asked[rollout_id]["data_id"]

    @cached_property
    def scored(self) -> dict[str, Finished]:
        """Rollouts with a reward and something to train."""
        finished = self.these.finished.items()
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
        questions = {row["data_id"]: row for row in self.these.asked.values()}
        rewards = self.rewards
        return [(question, rewards.get(data_id, [])) for data_id, question in questions.items()]

    def trainable(self, in_batch: Set[str]) -> dict[str, Finished]:
        """The scored rollouts of the groups `in_batch` with at least two of them.

        They stand in the order of the queue, not in that of their ends: it decides which rows share an optimizer step.
        """
        large = {group for group, members in self.groups.items() if len(members) > 1} & in_batch
        scored = self.scored
        return {i: scored[i] for i in self.these.asked if i in scored and self.question_of(i) in large}

    def why_left_out(self, rollout_id: str, in_batch: Set[str]) -> str:
        """Why a rollout is not trained on."""
        if rollout_id in self.too_old:
            return TOO_OLD
        if rollout_id not in self.scored:
            return UNSCORED
        return SMALL if self.question_of(rollout_id) in in_batch else REPLACED

    @property
    def unscored(self) -> dict[str, int]:
        """How many have no reward, by reason."""
        return dict(Counter(rollout.unscored for rollout in self.these.finished.values() if rollout.unscored))

    @property
    def counts(self) -> dict[str, float]:
        """Counts and means of the finished rollouts; means are over scored rollouts only."""
        rows, scored = {row["rollout_id"]: row for row in self.these.rows}, self.scored
        rewards = {name: scored[name].reward if name in scored else None for name in rows}
        by_agent = reward_by_agent((row, rewards[name]) for name, row in rows.items())
        scored_rows = [(r.reward or 0.0, rows[name]) for name, r in scored.items()]
        return {**of_rollouts(scored_rows, n_rollouts=self.n_queued, unscored=self.unscored), **by_agent}

    @property
    def group_counts(self) -> dict[str, float]:
        """How many groups have scored rollouts, and how many of them teach nothing."""
        return {
            "groups": len(self.groups),
            "zero_variance_groups": sum(map(is_flat, self.rewards.values())),
            "groups_too_small": sum(len(members) < 2 for members in self.groups.values()),
        }

    def no_data(self, what: str) -> RunError:
        """The error of a step from which nothing can be learned, with the likely causes."""
        rows, unscored = self.these.rows, self.unscored
        counts = {"rollouts": self.n_queued, "scored": len(self.scored), **unscored}
        reason = next((why for row in rows if row["unscored"] and (why := row.get("reason"))), "")
        first = f"; the first reason: {reason[:300]}" if reason else ""
        other = OTHER_CAUSE.format(first=reason[:300] or "the reason stands with each rollout")
        known = CAUSES | ({TOOL_FAULT: f"tools broke: {tools}"} if (tools := told_tools(rows)) else {})
        causes = "\n".join(f"  {n} x {why}: {known.get(why, other)}" for why, n in unscored.items())
        return RunError(
            NO_TRAINING_DATA.format(what=what, causes=causes, counts=counts, first=first, rollouts=self.file)
        )
