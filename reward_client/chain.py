"""Asking the endpoints in order until one gives a usable answer: the one retry loop of the judge.

Guarantees: when whom is asked again is told in tries.py; the wait for a place or a turn does not count as time. Who is
asked after an unusable answer is told the form again, since at temperature 0 the same prompt would get the same answer.
An endpoint that failed cools down, longer each time: the others are asked first. A process has at most `concurrency`
calls in flight at an endpoint; requests and tokens a minute are two leaky buckets without burst, shared by all
processes. Every try is paid from the run's budget.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from weakref import WeakKeyDictionary

from reward_client.client import ChatReply, JudgeBadRequest, JudgeBusy, JudgeNoCompletion, post_chat
from reward_client.errors import JudgeFault, JudgeRejected, JudgeUnparsable, JudgeUnreachable
from reward_client.ledger import Spending
from reward_client.request import Dialect, Request
from reward_client.schema import JudgeEndpoint, Usage
from reward_client.tries import Tries

logger = logging.getLogger(__name__)

FIRST_COOL_DOWN_S, MAX_COOL_DOWN_S = 10.0, 160.0
MAX_BLOCK_S = 3600.0  # a Retry-After of days, meant or not, is looked into again
BEHIND_S = 0.05  # a bucket may catch up on so much of a late wake-up
_of_loop: WeakKeyDictionary[
    asyncio.AbstractEventLoop, dict[tuple[str, int], tuple[asyncio.Semaphore, asyncio.Lock]]
] = WeakKeyDictionary()  # an entry goes with its loop
AGAIN = (JudgeUnreachable, JudgeUnparsable, JudgeRejected)  # faults that allow another try


@dataclass
class _Known:
    """What this process knows of an endpoint."""

    blocked_until_s: float = 0.0
    cool_until_s: float = 0.0
    cool_down_s: float = 0.0  # the last one's, of failures in a row

    def learn(self, fault: JudgeFault | None) -> None:
        """How a call ended."""
        if isinstance(fault, JudgeBusy):
            block_s = min(fault.retry_after_s, MAX_BLOCK_S)
            self.blocked_until_s = max(self.blocked_until_s, time.time() + block_s)
        elif isinstance(fault, JudgeNoCompletion | JudgeUnreachable) or type(fault) is JudgeRejected:
            self.cool_down_s = min(MAX_COOL_DOWN_S, max(FIRST_COOL_DOWN_S, 2 * self.cool_down_s))
            self.cool_until_s = time.time() + self.cool_down_s
        elif fault is None or isinstance(fault, JudgeUnparsable):
            self.cool_down_s = self.cool_until_s = 0.0


def _places(endpoint: str, n: int) -> tuple[asyncio.Semaphore, asyncio.Lock]:
    """The places at an endpoint in the running event loop, and what the one that waits for its turn holds."""
    of_loop = _of_loop.setdefault(asyncio.get_running_loop(), {})
    return of_loop.setdefault((endpoint, n), (asyncio.Semaphore(n), asyncio.Lock()))


@dataclass(frozen=True)
class Chain:
    """The endpoints in order of preference."""

    endpoints: Sequence[JudgeEndpoint]
    spending: Spending
    timeout_s: float
    attempts: int
    concurrency: int
    known: dict[str, _Known] = field(default_factory=lambda: defaultdict(_Known), repr=False)

    async def ask(
        self, request: Request, *, endpoints: Sequence[JudgeEndpoint] = (), again: tuple[type[JudgeFault], ...] = AGAIN
    ) -> tuple[JudgeEndpoint, ChatReply]:
        """A reply of the form asked for, and who gave it. `again` are the faults that allow another try.

        Its `usage` is what all tries cost, as is that of the last JudgeFault, which is raised.
        """
        now_s = time.time()
        # Those that cool down are asked last.
        order = sorted(endpoints or self.endpoints, key=lambda e: self.known[e.id].cool_until_s > now_s)
        way = _Way(order, timeout_s=self.timeout_s, attempts=self.attempts)
        while True:
            endpoint, left_s = way.left[0], way.left_s
            known = self.known[endpoint.id]
            places, pacing = _places(endpoint.id, self.concurrency)
            async with places:
                try:
                    async with pacing:
                        await self._turn(endpoint, request, longest_s=left_s)
                    way.ends_s = time.monotonic() + left_s  # the wait for place and turn is not counted
                    reply = await self._reply(way, endpoint, request)
                except JudgeFault as fault:
                    if self._is_put_otherwise(endpoint, fault):
                        continue
                    known.learn(fault)
                    pause_s = way.pause_s(fault) if isinstance(fault, again) else None
                    if pause_s is None or pause_s >= way.left_s:
                        fault.usage = way.usage
                        raise
                    logger.warning("next try in %.1f s: %s", pause_s, fault)
                else:
                    known.learn(None)
                    return endpoint, reply
                await asyncio.sleep(pause_s)  # in its place, which another call would use in vain

    async def _turn(self, endpoint: JudgeEndpoint, request: Request, *, longest_s: float) -> None:
        """Wait until the endpoint wants to be asked again and its limits allow it; the turn is booked at once.

        Raises JudgeBusy at once when it asked to be left alone for longer than `longest_s`.
        """
        while (blocked_s := self.known[endpoint.id].blocked_until_s - time.time()) > 0:
            if blocked_s > longest_s:
                raise JudgeBusy(f"judge {endpoint}: asks to wait {blocked_s:.0f} s", blocked_s)
            await asyncio.sleep(min(1.0, blocked_s))
        limits = [("requests", 1, endpoint.rpm), ("tokens", request.most.tokens, endpoint.tpm)]
        taken_s = {name: amount * 60 / per_minute for name, amount, per_minute in limits if per_minute}
        if taken_s:
            with self.spending.ledger.change(f"turns:{endpoint.id}") as next_s:
                start_s = max([time.time() - BEHIND_S, *next_s.values()])
                next_s |= {name: start_s + seconds for name, seconds in taken_s.items()}
            await asyncio.sleep(start_s - time.time())

    async def _reply(self, way: _Way, endpoint: JudgeEndpoint, request: Request) -> ChatReply:
        """The answer to one request, which is paid for by what it did use."""
        request = request.again if way.misread else request
        most, used, is_counted = endpoint.priced(request.most), Usage(), True
        self.spending.reserve(most)
        try:
            payload = self._dialect(endpoint).payload(request)
            reply = await post_chat(endpoint, payload, timeout_s=way.try_s)
            used = request.believed(reply.usage)
            is_counted = used.tokens > 0
        except JudgeFault as fault:
            used = request.believed(fault.usage)
            raise
        finally:
            used = endpoint.priced(used)
            way.usage += used
            if is_counted:
                self.spending.settle(most, used)
            if used.tokens and endpoint.tpm:
                with self.spending.ledger.change(f"turns:{endpoint.id}") as next_s:
                    unused = most.tokens - used.tokens
                    next_s["tokens"] = next_s.get("tokens", 0.0) - unused * 60 / endpoint.tpm
        try:
            request.reply.parse(reply.text)
        except JudgeUnparsable as exc:
            way.misread = True
            raise JudgeUnparsable(f"judge {endpoint}: {exc}") from None
        return reply.model_copy(update={"usage": way.usage})

    def _dialect(self, endpoint: JudgeEndpoint) -> Dialect:
        return Dialect(**(self.spending.ledger.get(f"dialect:{endpoint.id}") or {}))

    def _is_put_otherwise(self, endpoint: JudgeEndpoint, fault: JudgeFault) -> bool:
        """Whether the next try leaves out what the endpoint refused, a rung of the ladder at a time."""
        lower = self._dialect(endpoint).after_refusal(fault.detail) if isinstance(fault, JudgeBadRequest) else None
        if lower:
            self.remember(endpoint, lower)
        return lower is not None

    def remember(self, endpoint: JudgeEndpoint, dialect: Dialect) -> None:
        """Tell all processes how to write to this endpoint."""
        self.spending.ledger.put(f"dialect:{endpoint.id}", asdict(dialect))


class _Way(Tries[JudgeEndpoint]):
    """One question on its way, and what it has cost. `misread`: an answer to it could not be used."""

    usage = Usage()
    misread = False
