"""What the rollouts of a step come to, under the names of its metrics: for the daemon, and a run in one process.

In a mixed run of each agent too; nothing of that where one agent plays alone.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

DEFAULT = "default"  # the agent of questions that name none


def of_rollouts(
    scored: Sequence[tuple[float, Mapping[str, Any]]], *, n_rollouts: int, unscored: Mapping[str, int]
) -> dict[str, float]:
    """Counts and means; `scored` are rewards with their lines of rollouts.jsonl, and means are over them alone."""
    turns = [len(row.get("response_tokens", ())) for _, row in scored]
    stats: dict[str, float] = {
        "rollouts": n_rollouts,
        "scored": len(scored),
        "triplets": sum(turns),
        **{f"unscored/{reason}": n for reason, n in unscored.items()},
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
    by_agent: dict[str, list[float | None]] = defaultdict(list)
    for row, reward in rows:
        by_agent[row.get("agent") or ""].append(reward)
    if set(by_agent) <= {""}:
        return {}
    stats: dict[str, float] = {}
    for agent, rewards in sorted(by_agent.items()):
        name = f"reward/{agent or DEFAULT}"
        scored = [reward for reward in rewards if reward is not None]
        stats |= {f"{name}/rollouts": len(rewards), f"{name}/scored": len(scored)}
        if scored:
            stats[f"{name}/mean"] = statistics.fmean(scored)
    return stats
