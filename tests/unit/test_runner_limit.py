"""A rollout that takes too long: ended by its runner, a fault, and closed towards the model."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import time
from types import SimpleNamespace
from typing import Any

import pytest

from agl_plugin.run.supervision import SupervisedExecution
from agl_plugin.runner import LIMIT_SHARE, in_time
from foundation.rollout_keys import TIMED_OUT, UNSCORED_KEY


def rollout(timeout_s: float | None) -> Any:
    return SimpleNamespace(rollout_id="r", config=SimpleNamespace(timeout_seconds=timeout_s))


async def test_a_rollout_over_its_limit_is_cancelled_and_stays_unscored() -> None:
    ended: list[str] = []

    async def hang() -> Any:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    (note,) = await in_time(hang(), rollout(0.2))  # pyright: ignore
    assert ended == ["cancelled"] and note.attributes == {UNSCORED_KEY: TIMED_OUT} and LIMIT_SHARE < 1


@pytest.mark.parametrize("times", [1, 10**9])
async def test_an_agent_that_swallows_its_end_has_no_result(times: int) -> None:
    """Once, and then it answers; and for ever."""
    released = asyncio.Event()

    async def swallow() -> Any:
        for _ in range(times):
            try:
                await released.wait()
                break
            except asyncio.CancelledError:
                continue
        return ["a result"]

    async with asyncio.timeout(5):
        (note,) = await in_time(swallow(), rollout(0.2))  # pyright: ignore
    assert note.attributes == {UNSCORED_KEY: TIMED_OUT}
    released.set()


@pytest.mark.parametrize("raises", [False, True])
async def test_an_agent_that_blocks_past_its_limit_has_no_result(raises: bool) -> None:
    """The loop sees limit and result together; a neighbour that was done in time keeps its own."""

    async def block() -> Any:
        await asyncio.sleep(0.01)
        time.sleep(0.4)
        return [] if not raises else 1 / 0

    async def neighbour() -> Any:
        return ["a result"]

    (note,), other = await asyncio.gather(in_time(block(), rollout(0.2)), in_time(neighbour(), rollout(0.2)))  # pyright: ignore
    assert note.attributes == {UNSCORED_KEY: TIMED_OUT} and other == ["a result"]


async def test_a_timeout_of_the_agents_own_is_an_error_of_the_agent() -> None:
    async def fail() -> Any:
        raise TimeoutError("a query")

    with pytest.raises(TimeoutError, match="a query"):
        await in_time(fail(), rollout(60.0))


@pytest.mark.parametrize("limit_s", [60.0, None])
async def test_a_rollout_in_time_is_left_alone(limit_s: float | None) -> None:
    async def work() -> Any:
        return []

    assert await in_time(work(), rollout(limit_s)) == []


def test_a_runner_ends_although_an_agent_swallows_its_end() -> None:
    process = multiprocessing.get_context("fork").Process(target=Ending()._run_runner, args=(None, 0, None, None))
    process.start()
    process.join(20)
    left = process.exitcode
    process.kill()
    assert left == 0


class Ending(SupervisedExecution):
    async def _execute_runner(self, runner: Any, worker_id: int, store: Any, stop_evt: Any) -> None:
        self.task = asyncio.create_task(self._swallows())
        await asyncio.sleep(0.2)

    async def _swallows(self) -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
