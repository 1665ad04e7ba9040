"""The words by which a runner tells the trainer of a rollout; both sides import them from here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

AWAITS_GROUP = "awaits_group"  # the reason of a rollout that gets its reward together with its group
RECORD_KEY = "agentgrpo.record"
UNSCORED_KEY = "agentgrpo.unscored"
LLM_CALLS_KEY = "agentgrpo.llm_calls"


# From the records of a group's rollouts to the keys of each that change, in the same order: reward, reward_parts,
# unscored ("" with a reward) and whatever else should stand in rollouts.jsonl.
GradeGroup = Callable[[list[dict[str, Any]]], Awaitable[list[dict[str, Any]]]]
