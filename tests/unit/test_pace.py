"""Turns of calls that come together."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from agl_plugin.proxy.pace import AT_A_TIME, Pace


async def rounds_of(n_calls: int, *, cancelled: Collection[int] = ()) -> list[int]:
    """In which round of the event loop each call that was not cancelled went on."""
    pace, now, went = Pace(), 0, dict[int, int]()

    def count() -> None:
        nonlocal now
        now += 1
        if len(went) < n_calls - len(cancelled):
            loop.call_soon(count)

    async def call(number: int) -> None:
        await pace.turn()
        went[number] = now

    loop = asyncio.get_running_loop()
    calls = [asyncio.create_task(call(number)) for number in range(n_calls)]
    await asyncio.sleep(0)
    for number in cancelled:
        calls[number].cancel()
    loop.call_soon(count)
    await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 10)
    assert list(went) == sorted(went) and len(went) == n_calls - len(cancelled)
    return list(went.values())


async def test_so_many_go_on_in_a_round_in_the_order_of_their_coming() -> None:
    rounds = await rounds_of(64)
    assert max(map(rounds.count, rounds)) == AT_A_TIME and max(rounds) >= 64 // AT_A_TIME - 1


async def test_a_cancelled_call_holds_nobody_up() -> None:
    await rounds_of(20, cancelled={0, 1, 2, 7, 19})
