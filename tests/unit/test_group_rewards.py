"""When the grading of a group starts, and what becomes of rollouts that it leaves out."""

from __future__ import annotations

import asyncio
from typing import Any

from agl_plugin.run.ahead import Finished
from agl_plugin.run.group_rewards import GroupRewards
from foundation.rollout_keys import AWAITS_GROUP


def row(rollout: str, group: str, unscored: str = AWAITS_GROUP) -> dict[str, Any]:
    return {"rollout_id": rollout, "group": group, "unscored": unscored, "reward": None}


async def graded(rows: list[dict[str, Any]], order: list[str]) -> tuple[list[tuple[str, list[str]]], dict[str, Any]]:
    """Which rollouts were handed to the grader after which one had finished; and the rollouts."""
    calls: list[tuple[str, list[str]]] = []
    last = ""

    async def grade(members: list[dict[str, Any]]) -> list[dict[str, Any]]:
        calls.append((last, [member["rollout_id"] for member in members]))
        return [{"unscored": "", "reward": n / 10} for n, _ in enumerate(members)]

    rollouts = {one["rollout_id"]: Finished(None, one["unscored"], []) for one in rows}
    groups = {one["rollout_id"]: one["group"] for one in rows}
    sizes = {group: list(groups.values()).count(group) for group in groups.values()}
    rewards, arrived = (
        GroupRewards(grade, arrived_rows := [], rollouts, sizes),
        {one["rollout_id"]: one for one in rows},
    )
    for last in order:
        arrived_rows.append(arrived[last])
        rewards.finished(groups[last])
        await asyncio.sleep(0)
    await rewards.all_graded()
    return calls, rollouts


def test_a_group_is_graded_when_its_last_rollout_has_finished_and_not_before() -> None:
    rows = [row("a1", "a"), row("b1", "b"), row("a2", "a"), row("b2", "b"), row("a3", "a")]
    calls, _ = asyncio.run(graded(rows, ["a1", "b1", "a2", "b2", "a3"]))
    assert calls == [("b2", ["b1", "b2"]), ("a3", ["a1", "a2", "a3"])]


def test_those_that_wait_get_their_reward_and_a_fault_none() -> None:
    rows = [row("a1", "a"), row("a2", "a", unscored="llm_fault"), row("a3", "a")]
    _, rollouts = asyncio.run(graded(rows, ["a1", "a2", "a3"]))
    assert [rollouts[name].reward for name in ("a1", "a2", "a3")] == [0.0, None, 0.2]
    assert [rollouts[name].unscored for name in ("a1", "a2", "a3")] == ["", "llm_fault", ""]


def test_a_group_in_which_nobody_waits_is_not_graded() -> None:
    calls, _ = asyncio.run(graded([row("a1", "a", unscored=""), row("a2", "a", unscored="")], ["a1", "a2"]))
    assert calls == []
