"""How many calls an endpoint gets at once and a minute: one state per endpoint, shared by all processes of the machine.

Concurrency follows additive increase and multiplicative decrease: it starts at the configured most; a round of answers
adds GROWTH of the most; a 429 takes off half the share of calls refused lately, at most once per round trip (calls that
started before the last cut do not cut again). The share makes it gentle with a stray 429 and hard in an overload, as
in DCTCP (RFC 8257).
Requests and tokens a minute are two leaky buckets without burst. Retry-After blocks the endpoint for everybody, for
an hour at most.
An endpoint that fails cools down, longer each time; a chain then asks the next one first (see chain.py).
Guarantees: a killed process gives its places back when its leases expire; waiting is first come, first served within
an event loop. Limits in one process would not do: runner processes and the training side ask the same endpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from reward_client.client import JudgeBusy, JudgeNoCompletion
from reward_client.errors import JudgeFault, JudgeRejected, JudgeUnparsable, JudgeUnreachable
from reward_client.ledger import Ledger
from reward_client.schema import JudgeEndpoint

GROWTH = 0.125
GAIN = 0.125  # weight of one call in the share of refused ones
POLL_S = 0.01
BEHIND_S = 0.05  # a bucket may catch up on so much of a late wake-up
FORGET_S = 300.0  # what was learned about an endpoint that nobody has asked for so long is forgotten
LEASE_MARGIN_S = 5.0
FIRST_COOL_DOWN_S, MAX_COOL_DOWN_S = 10.0, 160.0
MAX_BLOCK_S = 3600.0  # a Retry-After of days, meant or not, is looked into again


@dataclass
class _Queue:
    """Who waits for an endpoint in one event loop: only the first looks for a place. `freed` wakes it early."""

    first: asyncio.Lock
    freed: asyncio.Event


# Locks belong to one event loop, and each rollout may run its own.
_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Queue]] = WeakKeyDictionary()


@dataclass
class Slot:
    """A call in flight. `tokens` is what it was expected to use; set it to what it did use."""

    tokens: int


class Limiter:
    """Places at endpoints. `concurrency` is the most calls in flight per endpoint; rpm and tpm 0 mean no limit."""

    def __init__(self, ledger: Ledger, *, concurrency: int, rpm: int = 0, tpm: int = 0) -> None:
        self._ledger = ledger
        self._concurrency = concurrency
        self._rpm = rpm
        self._tpm = tpm

    def cools_down(self, endpoint: JudgeEndpoint) -> bool:
        """True while another endpoint should be asked first."""
        return self._state(endpoint).get("cool_until", 0.0) > time.time()

    @contextlib.asynccontextmanager
    async def slot(self, endpoint: JudgeEndpoint, *, tokens: int, longest_s: float) -> AsyncIterator[Slot]:
        """Hold one place for a call of about `tokens` tokens and at most `longest_s` seconds.

        Raises JudgeBusy at once when the endpoint asked to be left alone for longer than `longest_s`.
        """
        lease, slot, started_s = secrets.token_hex(6), Slot(tokens), time.time()
        queue = self._queue(endpoint)
        async with queue.first:
            while (wait_s := self._try(endpoint, lease, tokens=tokens, longest_s=longest_s)) > 0:
                queue.freed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(queue.freed.wait(), wait_s)
        fault: JudgeFault | None = None
        try:
            started_s = time.time()
            yield slot
        except JudgeFault as exc:
            fault = exc
            raise
        finally:
            self._release(endpoint, lease, fault=fault, started_s=started_s, surplus=slot.tokens - tokens)
            queue.freed.set()

    def _queue(self, endpoint: JudgeEndpoint) -> _Queue:
        queues = _queues.setdefault(asyncio.get_running_loop(), {})
        return queues.setdefault(endpoint.id, _Queue(asyncio.Lock(), asyncio.Event()))

    def _key(self, endpoint: JudgeEndpoint) -> str:
        return f"limits:{endpoint.id}"

    def _state(self, endpoint: JudgeEndpoint) -> dict[str, Any]:
        return self._ledger.get(self._key(endpoint)) or {}

    def _try(self, endpoint: JudgeEndpoint, lease: str, *, tokens: int, longest_s: float) -> float:
        """Seconds to wait before the next try; 0 when the place is ours."""
        wait_s = self._wait_s(endpoint, self._state(endpoint), longest_s)  # reading is cheap, a transaction less so
        if wait_s > 0:
            return wait_s
        with self._ledger.change(self._key(endpoint), expire_s=FORGET_S) as state:
            wait_s = self._wait_s(endpoint, state, longest_s)
            if wait_s > 0:
                return wait_s
            now = time.time()
            held = {key: until for key, until in state.get("held", {}).items() if until > now}
            state["held"] = {**held, lease: now + longest_s + LEASE_MARGIN_S}
            for name, amount, per_minute in self._buckets(endpoint, tokens):
                state[name] = max(state.get(name, 0.0), now - BEHIND_S) + amount * 60 / per_minute
        return 0.0

    def _buckets(self, endpoint: JudgeEndpoint, tokens: float) -> list[tuple[str, float, int]]:
        rows = [("next_request", 1.0, endpoint.rpm or self._rpm), ("next_tokens", tokens, endpoint.tpm or self._tpm)]
        return [row for row in rows if row[2]]

    def _wait_s(self, endpoint: JudgeEndpoint, state: dict[str, Any], longest_s: float) -> float:
        now = time.time()
        blocked_s = state.get("blocked_until", 0.0) - now
        if blocked_s > longest_s:
            raise JudgeBusy(f"judge {endpoint}: asks to wait {blocked_s:.0f} s", blocked_s)
        names = [name for name, _, _ in self._buckets(endpoint, 0)]
        wait_s = max([blocked_s, *(state.get(name, 0.0) - now for name in names)])
        n_held = sum(until > now for until in state.get("held", {}).values())
        if wait_s <= 0 and n_held >= int(state.get("limit", self._concurrency)):
            return POLL_S
        return max(0.0, min(wait_s, 1.0))

    def _release(
        self, endpoint: JudgeEndpoint, lease: str, *, fault: JudgeFault | None, started_s: float, surplus: int
    ) -> None:
        with self._ledger.change(self._key(endpoint), expire_s=FORGET_S) as state:
            state.setdefault("held", {}).pop(lease, None)
            for name, _, per_minute in self._buckets(endpoint, 0):
                if name == "next_tokens":
                    state[name] = state.get(name, 0.0) + surplus * 60 / per_minute
            self._learn(state, fault, started_s)

    def _learn(self, state: dict[str, Any], fault: JudgeFault | None, started_s: float) -> None:
        now, limit = time.time(), min(float(state.get("limit", self._concurrency)), float(self._concurrency))
        refused = state.get("refused", 0.0)
        state["refused"] = refused + GAIN * (isinstance(fault, JudgeBusy) - refused)
        if isinstance(fault, JudgeBusy):
            state["blocked_until"] = max(state.get("blocked_until", 0.0), now + min(fault.retry_after_s, MAX_BLOCK_S))
            if started_s > state.get("cut_at", 0.0):
                state["limit"], state["cut_at"] = max(1.0, limit * (1 - state["refused"] / 2)), now
        elif isinstance(fault, JudgeNoCompletion | JudgeUnreachable) or type(fault) is JudgeRejected:
            state["failures"] = state.get("failures", 0) + 1
            state["cool_until"] = now + min(MAX_COOL_DOWN_S, FIRST_COOL_DOWN_S * 2.0 ** (state["failures"] - 1))
        elif fault is None or isinstance(fault, JudgeUnparsable):
            step = max(1.0, GROWTH * self._concurrency)
            state["limit"] = min(float(self._concurrency), limit + step / limit)
            state["failures"] = 0
            state["cool_until"] = 0.0
