"""The watch over the gateway's process, whose end is seen late; wire/test_gateway_killed.py kills a real one."""

from __future__ import annotations

import asyncio
import time

from agl_plugin.run.gateway_watch import DYING_S, GatewayWatch


class Dying:
    """A process that was killed and whose exit code can be read after a while; a new one has none."""

    def __init__(self, seen_after_s: float) -> None:
        self._seen_at, self.starts = time.monotonic() + seen_after_s, 0

    @property
    def exit_code(self) -> int | None:
        return -9 if not self.starts and time.monotonic() >= self._seen_at else None

    async def restart(self) -> None:
        self.starts += 1


async def test_rollouts_that_lose_their_calls_before_the_end_is_seen_play_again() -> None:
    proxy = Dying(0.05)
    watch = GatewayWatch(proxy)
    await watch.look(["a", "b"])
    assert not watch.plays_again("a")  # nothing is known yet
    await asyncio.gather(*(watch.look(["a", "b"], may_be_dying=True) for _ in "ab"))
    assert proxy.starts == 1 and watch.plays_again("a") and watch.plays_again("b") and not watch.plays_again("a")


async def test_rollouts_that_lose_calls_at_a_living_gateway_wait_together_and_shortly() -> None:
    watch, started = GatewayWatch(Dying(60.0)), time.monotonic()
    await asyncio.gather(*(watch.look(["a"], may_be_dying=True) for _ in range(100)))
    assert not watch.plays_again("a") and time.monotonic() - started < 20 * DYING_S  # one after the other: 25 s
