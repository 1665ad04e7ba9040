"""How many calls an endpoint gets at once and a minute: one state per endpoint, shared by all processes of the machine.

A call in flight holds one of `concurrency` places, each a lock; while the endpoint refuses calls, only the first few
may be taken. How many follows additive increase and multiplicative decrease: a round of answers adds GROWTH of all;
a 429 takes off half the share of calls refused lately, at most once per round trip (calls that started before the last
cut do not cut again). The share makes it gentle with a stray 429 and hard in an overload, as in DCTCP (RFC 8257).
Requests and tokens a minute are two leaky buckets without burst. Retry-After blocks the endpoint for everybody, for
an hour at most. An endpoint that fails cools down, longer each time; a chain then asks the next one first (chain.py).
Guarantees: a killed process gives its places back. Limits in one process would not do: runner processes and the
training side ask the same endpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from reward_client.client import JudgeBusy, JudgeNoCompletion
from reward_client.errors import JudgeFault, JudgeFolderFault, JudgeRejected, JudgeUnparsable, JudgeUnreachable
from reward_client.ledger import Ledger
from reward_client.schema import JudgeEndpoint

GROWTH = 0.125
GAIN = 0.125  # weight of one call in the share of refused ones
POLL_S = 0.01
BEHIND_S = 0.05  # a bucket may catch up on so much of a late wake-up
FORGET_S = 300.0  # what was learned about an endpoint so long ago is forgotten
FIRST_COOL_DOWN_S, MAX_COOL_DOWN_S = 10.0, 160.0
MAX_BLOCK_S = 3600.0  # a Retry-After of days, meant or not, is looked into again

# Those of one event loop get places in the order in which they came: the semaphore lets in as many as there are places,
# and the first of them alone looks for one, because other processes hold some. Both belong to one loop.
_Queue = tuple[asyncio.Semaphore, asyncio.Lock]
_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Queue]] = WeakKeyDictionary()


@dataclass
class Place:
    """A call in flight. `tokens` is what it was expected to use; set it to what it did use."""

    name: str
    tokens: int


@dataclass(frozen=True)
class Limiter:
    """Places at endpoints. `concurrency` is the most calls in flight per endpoint; rpm and tpm 0 mean no limit."""

    ledger: Ledger
    concurrency: int
    rpm: int = 0
    tpm: int = 0

    def cools_down(self, endpoint: JudgeEndpoint) -> bool:
        """True while another endpoint should be asked first."""
        state = self.ledger.get(f"limits:{endpoint.id}") or {}
        return state.get("cool_until", 0.0) > time.time()

    @contextlib.asynccontextmanager
    async def place(self, endpoint: JudgeEndpoint, *, tokens: int, longest_s: float) -> AsyncIterator[Place]:
        """Hold one place for a call of about `tokens` tokens.

        Raises JudgeBusy at once when the endpoint asked to be left alone for longer than `longest_s`.
        """
        queues = _queues.setdefault(asyncio.get_running_loop(), {})
        key = f"{self.concurrency} {endpoint.id}"
        inside, first = queues.setdefault(key, (asyncio.Semaphore(self.concurrency), asyncio.Lock()))
        async with inside:
            async with first:
                while not isinstance(place := self._take(endpoint, tokens, longest_s), Place):
                    await asyncio.sleep(place)
            fault, started_s = None, time.time()
            try:
                yield place
            except JudgeFault as exc:
                fault = exc
                raise
            finally:
                self.ledger.unlock(place.name)
                self._learn(endpoint, fault, started_s=started_s, surplus=place.tokens - tokens)

    def _take(self, endpoint: JudgeEndpoint, tokens: int, longest_s: float) -> Place | float:
        """A place, or seconds to wait before the next try."""
        name = None
        try:
            with self._change(endpoint) as state:
                now, buckets = time.time(), self._buckets(endpoint, tokens)
                blocked_s = state.get("blocked_until", 0.0) - now
                if blocked_s > longest_s:
                    raise JudgeBusy(f"judge {endpoint}: asks to wait {blocked_s:.0f} s", blocked_s)
                wait_s = max([blocked_s, *(state.get(bucket, 0.0) - now for bucket, _, _ in buckets)])
                if wait_s > 0:
                    return min(1.0, wait_s)
                prefix = f"place:{endpoint.id}"
                names = (f"{prefix}:{n}" for n in range(int(self._limit(state))))
                name = next(filter(self.ledger.lock, names), None)
                if name is None:
                    return POLL_S
                for bucket, amount, per_minute in buckets:
                    state[bucket] = max(state.get(bucket, 0.0), now - BEHIND_S) + amount * 60 / per_minute
        except JudgeFolderFault:
            if name:  # the transaction failed at its end
                self.ledger.unlock(name)
            raise
        return Place(name, tokens)

    def _change(self, endpoint: JudgeEndpoint) -> contextlib.AbstractContextManager[dict[str, Any]]:
        return self.ledger.change(f"limits:{endpoint.id}", expire_s=FORGET_S)

    def _buckets(self, endpoint: JudgeEndpoint, tokens: int) -> list[tuple[str, int, int]]:
        rows = [("next_request", 1, endpoint.rpm or self.rpm), ("next_tokens", tokens, endpoint.tpm or self.tpm)]
        return [row for row in rows if row[2]]

    def _limit(self, state: dict[str, Any]) -> float:
        return min(state.get("limit", self.concurrency), self.concurrency)

    def _learn(self, endpoint: JudgeEndpoint, fault: JudgeFault | None, *, started_s: float, surplus: int) -> None:
        with self._change(endpoint) as state:
            now, limit, is_busy = time.time(), self._limit(state), isinstance(fault, JudgeBusy)
            for bucket, amount, per_minute in self._buckets(endpoint, surplus)[bool(endpoint.rpm or self.rpm) :]:
                state[bucket] = state.get(bucket, 0.0) + amount * 60 / per_minute
            refused = state.get("refused", 0.0)
            state["refused"] = round(refused + GAIN * (is_busy - refused), 3)
            if isinstance(fault, JudgeBusy):
                block_s = min(fault.retry_after_s, MAX_BLOCK_S)
                state["blocked_until"] = max(state.get("blocked_until", 0.0), now + block_s)
                if started_s > state.get("cut_at", 0.0):
                    state["limit"], state["cut_at"] = max(1.0, limit * (1 - state["refused"] / 2)), now
            elif isinstance(fault, JudgeNoCompletion | JudgeUnreachable) or type(fault) is JudgeRejected:
                state["failures"] = state.get("failures", 0) + 1
                state["cool_until"] = now + min(MAX_COOL_DOWN_S, FIRST_COOL_DOWN_S * 2.0 ** (state["failures"] - 1))
            elif fault is None or isinstance(fault, JudgeUnparsable):
                step = max(1.0, GROWTH * self.concurrency)
                state |= {"limit": min(self.concurrency, limit + step / limit), "failures": 0, "cool_until": 0.0}
