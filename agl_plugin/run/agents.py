"""Figures of each agent of a mixed run, from the records of rollouts; nothing where one agent plays alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

DEFAULT = "default"


def reward_by_agent(rows: Iterable[tuple[Mapping[str, Any], float | None]]) -> dict[str, float]:
    """reward/AGENT/mean, /rollouts and /scored, of records with their reward (None: unscored)."""
    by_agent: dict[str, list[float | None]] = defaultdict(list)
    for row, reward in rows:
        by_agent[row.get("agent") or ""].append(reward)
    if set(by_agent) <= {""}:
        return {}
    stats: dict[str, float] = {}
    for agent, rewards in sorted(by_agent.items()):
        name, scored = f"reward/{agent or DEFAULT}", [reward for reward in rewards if reward is not None]
        stats |= {f"{name}/rollouts": len(rewards), f"{name}/scored": len(scored)}
        stats |= {f"{name}/mean": fmean(scored)} if scored else {}
    return stats
