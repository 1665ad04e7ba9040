"""The gate of the LLM proxy: between two steps no call reaches the model server, whose weights change then.

The trainer's process opens, closes and reads it, and says with which weights it is open; the proxy's, forked from that
one, counts. So there must be one proxy process, forked after the gate was made.
Guarantees: once it is closed or held and `in_flight` is 0, the proxy waits for no answer of the model server and asks
it nothing. A closed one refuses calls; at a held one they wait, and do not count, until it is opened: so rollouts go on
over a change of weights. Whether the proxy lives may be asked at any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from multiprocessing.sharedctypes import RawValue
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Not /health, which asks the model server for a completion: the first one takes it seconds.
ALIVE_PATH = "/health/liveliness"
# Not 503, at which clients try again: the next step has other weights, and no use for this rollout.
GONE = 410
OPEN, CLOSED, HELD = range(3)
HELD_LOOK_S = 0.05
REFUSAL = "the step of this rollout has ended, and the model server is taking new weights: the call is too late"


def error_body(message: str, *, kind: str, status: int) -> dict[str, Any]:
    """An error as OpenAI words it."""
    return {"error": {"message": message, "type": kind, "code": str(status)}}


REFUSED = error_body(REFUSAL, kind="step_ended", status=GONE)


class Gate:
    """Numbers that both processes see; each is written by one of them."""

    def __init__(self) -> None:
        self._state, self._in_flight, self._refused = RawValue("i"), RawValue("i"), RawValue("i")
        self._weights = RawValue("i")

    @property
    def in_flight(self) -> int:
        """Calls that have passed and are not answered yet."""
        return self._in_flight.value

    @property
    def refused(self) -> int:
        """Calls that came while it was closed, since the start of the run."""
        return self._refused.value

    @property
    def weights(self) -> int:
        """With which weights it was opened: how many updates they have seen."""
        return self._weights.value

    def open(self, *, weights: int = 0) -> None:
        """Let calls pass, to a model server that has these weights."""
        self._weights.value = weights
        self._state.value = OPEN

    def close(self) -> None:
        """Refuse calls from now on."""
        self._state.value = CLOSED

    def hold(self) -> None:
        """Let calls wait from now on."""
        self._state.value = HELD

    @contextmanager
    def shut(self) -> Iterator[None]:
        """Refuse calls within the block; after it, it is as it was."""
        before = self._state.value
        self._state.value = CLOSED
        try:
            yield
        finally:
            self._state.value = before

    def forget(self) -> None:
        """The process that counted has ended: nothing is in flight."""
        self._in_flight.value = 0

    @asynccontextmanager
    async def call(self) -> AsyncIterator[bool]:
        """Count a call; False when it must be refused. It must be whole: one that is still being sent would count."""
        # Counted before the look, so that the trainer, who closes before it counts, misses none.
        self._in_flight.value += 1
        while (state := self._state.value) == HELD:
            self._in_flight.value -= 1
            await asyncio.sleep(HELD_LOOK_S)
            self._in_flight.value += 1
        try:
            self._refused.value += state
            yield state == OPEN
        finally:
            self._in_flight.value -= 1

    def guarding(self, app: ASGIApp) -> ASGIApp:
        """The gate as a middleware. It reads a request to its end before it counts it."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["path"] == ALIVE_PATH:
                await app(scope, receive, send)
                return
            parts = [await receive()]
            while parts[-1].get("more_body"):
                parts.append(await receive())
            buffered = iter(parts)

            async def receive_again() -> Message:
                return next(buffered, None) or await receive()

            async with self.call() as passes:
                answering = app if passes else JSONResponse(REFUSED, GONE)
                await answering(scope, receive_again, send)

        return guarded
