"""The words by which a runner tells the trainer of a rollout; both sides import them from here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal
from zlib import crc32

from pydantic import BaseModel, ConfigDict, Field

TIMED_OUT = "timed_out"  # the reason of a rollout that its runner or the store gave up
TOOL_FAULT = "tool_fault"  # the reason of a rollout whose tool broke; its record's `fault` names it
NO_LLM_CALL = "no_llm_call"  # the reason of a rollout with a reward and without a call to learn from
AWAITS_GROUP = "awaits_group"  # the reason of a rollout that gets its reward together with its group
RECORD_KEY = "agentgrpo.record"
UNSCORED_KEY = "agentgrpo.unscored"
SEED_KEY = "agentgrpo.seed"  # in a rollout's metadata: what its calls are drawn with
LLM_CALLS_KEY = "agentgrpo.llm_calls"
POOLS = ("new", "never", "hard", "middle", "easy", "always")  # of a curriculum's questions, in metrics.jsonl too
DEFAULT_AGENT = "default"  # what rows without an agent are called in figures
MAIN_LLM = "main_llm"  # the resource that agents call
OTHER_LLM = f"{MAIN_LLM}@"  # and a machine: the same by its gateway


class RunKeys(BaseModel):
    """What the trainer adds to a rollout's record, as keys of its line in rollouts.jsonl."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    step: int = 0
    mode: Literal["train", "val"] = "train"
    rollout_id: str = ""
    group: str = ""
    resampled: bool = False
    status: str = ""
    unscored: str = ""
    prompt_tokens_by_call: list[int] = Field(default_factory=list)
    response_tokens: list[int] = Field(default_factory=list)
    finish_reasons: list[str | None] = Field(default_factory=list)


# From the records of a group's rollouts to the keys of each that change, in the same order: reward, reward_parts,
# unscored ("" with a reward) and whatever else should stand in rollouts.jsonl.
GradeGroup = Callable[[list[dict[str, Any]]], Awaitable[list[dict[str, Any]]]]


def resources_of(rollout_id: str, resources: Mapping[str, Any]) -> dict[str, Any]:
    """The resources of a rollout: of several gateways the one that its id says, under the name of the one."""
    names = sorted(name for name in resources if name == MAIN_LLM or name.startswith(OTHER_LLM))
    main = {MAIN_LLM: resources[names[crc32(rollout_id.encode()) % len(names)]]} if names else {}
    return {name: resource for name, resource in resources.items() if name not in names} | main


def broken_tools(rows: Iterable[Mapping[str, Any]]) -> Counter[tuple[str, str]]:
    """How many rollouts each tool left unscored, by its name and a word for what became of it."""
    faults = (row.get("fault") or {} for row in rows if row.get("unscored") == TOOL_FAULT)
    return Counter((fault["tool"], fault["reason"]) for fault in faults if fault)


def told_tools(rows: Iterable[Mapping[str, Any]]) -> str:
    """The same for people: `search (exit) 3 x`."""
    return ", ".join(f"{tool} ({reason}) {n} x" for (tool, reason), n in broken_tools(rows).most_common(8))
