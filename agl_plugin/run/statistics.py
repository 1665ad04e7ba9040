"""What the rollouts of a step come to, under the names of its metrics: for the daemon, and a run in one process.

In a mixed run of each agent too; nothing of that where one agent plays alone.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agl_plugin.run.resampling import is_flat
from foundation.errors import RunError
from foundation.grouping import grouped
from foundation.rollout_keys import DEFAULT_AGENT, NO_LLM_CALL, TIMED_OUT, TOOL_FAULT, told_tools

NO_TRAINING_DATA = """{what}. Why:
{causes}
Seen in this step: {counts}{first}. Each rollout with its reason: {rollouts}"""
BROKEN_TOKEN_IDS = "broken_token_ids"
# What stands behind a reason; of others the record of the rollout says more.
CAUSES = {
    "no_token_ids": "the model server gave no token ids: it must be vLLM behind the LLM proxy",
    NO_LLM_CALL: "the agent answered without the trained model: it made no call, or those that it made were refused",
    BROKEN_TOKEN_IDS: "spans of LLM calls go on from calls whose spans are lost or changed (train.log names them)",
    "llm_fault": "calls of the model failed: the model server, or the LLM proxy before it, was down or refused them",
    "agent_error": "the agent raised, or its runner could not reach the store: see the runner's log",
    TIMED_OUT: "rollouts took longer than rollout.rollout_timeout_s",
}
OTHER_CAUSE = "a fault of that kind ended them: {first}"


def of_rollouts(
    rewarded: Sequence[tuple[Mapping[str, Any], float | None]], *, n_rollouts: int, unscored: Mapping[str, int]
) -> dict[str, float]:
    """Counts and means, over all and by agent; `rewarded` are lines of rollouts.jsonl with rewards (None: unscored),
    and means are over the scored ones alone."""
    scored = [(reward, row) for row, reward in rewarded if reward is not None]
    turns = [len(row.get("response_tokens", ())) for _, row in scored]
    stats: dict[str, float] = {
        "rollouts": n_rollouts,
        "scored": len(scored),
        "triplets": sum(turns),
        **{f"unscored/{reason}": n for reason, n in unscored.items()},
        **reward_by_agent(rewarded),
    }
    if not scored:
        return stats
    rewards = [reward for reward, _ in scored]
    stats |= {"reward_mean": statistics.fmean(rewards), "reward_min": min(rewards), "reward_max": max(rewards)}
    stats["zero_reward_share"] = rewards.count(0.0) / len(rewards)
    parts: defaultdict[str, list[float]] = defaultdict(list)
    for _, row in scored:
        for name, value in row.get("reward_parts", {}).items():
            parts[name].append(value)
    stats |= {f"reward_parts/{name}": statistics.fmean(values) for name, values in parts.items()}
    stats["turns_mean"] = statistics.fmean(turns)
    stats["response_tokens_mean"] = statistics.fmean(sum(row.get("response_tokens", ())) for _, row in scored)
    stops = Counter(row.get("stop_reason", "unknown") for _, row in scored)
    return stats | {f"stop/{why}": n for why, n in stops.items()}


def reward_by_agent(rows: Iterable[tuple[Mapping[str, Any], float | None]]) -> dict[str, float]:
    """reward/AGENT/mean, /rollouts and /scored, of records with their reward (None: unscored)."""
    by_agent = grouped(rows, lambda rewarded: rewarded[0].get("agent") or "")
    if set(by_agent) <= {""}:
        return {}
    stats: dict[str, float] = {}
    for agent, rewarded in sorted(by_agent.items()):
        name = f"reward/{agent or DEFAULT_AGENT}"
        scored = [reward for _, reward in rewarded if reward is not None]
        stats |= {f"{name}/rollouts": len(rewarded), f"{name}/scored": len(scored)}
        if scored:
            stats[f"{name}/mean"] = statistics.fmean(scored)
    return stats


def of_groups(groups: Iterable[Sequence[float]]) -> dict[str, float]:
    """How many groups have scored rollouts, whose rewards these are, and how many of them teach nothing."""
    rewards = [*groups]
    return {
        "groups": len(rewards),
        "zero_variance_groups": sum(map(is_flat, rewards)),
        "groups_too_small": sum(len(of_group) < 2 for of_group in rewards),
    }


def no_data(what: str, rows: Sequence[Mapping[str, Any]], *, counts: dict[str, int], file: Path) -> RunError:
    """The error of a step from whose rollouts nothing can be learned, with the likely causes."""
    reason = next((row["reason"] for row in rows if row["unscored"] and row.get("reason")), "")
    first = f"; the first reason: {reason[:300]}" if reason else ""
    other = OTHER_CAUSE.format(first=reason[:300] or "the reason stands with each rollout")
    tools = told_tools(rows)
    known = CAUSES | {TOOL_FAULT: f"tools broke: {tools}"} if tools else CAUSES
    unscored = Counter(row["unscored"] for row in rows if row["unscored"])
    causes = "\n".join(f"  {n} x {why}: {known.get(why, other)}" for why, n in unscored.items())
    return RunError(NO_TRAINING_DATA.format(what=what, causes=causes, counts=counts, first=first, rollouts=file))
