"""Turns on an event loop for calls that come together, as those of a step's rollouts do.

The loop takes what has arrived, works on all of it, and sends at the end of the round: without turns 256 calls would
leave behind the work on all of them, their answers would come together, and so would the next calls, for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque

AT_A_TIME = 2  # calls of a round


class Pace:
    """First come, first served; a call that was cancelled gives its turn away."""

    def __init__(self) -> None:
        self._waiting = deque[asyncio.Future[None]]()

    async def turn(self) -> None:
        """Return in a round in which at most AT_A_TIME calls go on, the next one at best."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._next)
        mine: asyncio.Future[None] = loop.create_future()
        self._waiting.append(mine)
        await mine

    def _next(self) -> None:
        for _ in range(min(AT_A_TIME, len(self._waiting))):
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
