"""Asking the endpoints in order until one gives a usable answer: the one retry loop of the judge.

Guarantees: at most `attempts` failed tries per endpoint, all within `timeout_s`, not counting the wait for a place. A
429 is no failed try: it stays with its endpoint (a growing pause, or the server's Retry-After) as long as that fits,
and where there is another endpoint, for one more try without Retry-After. After a hang, a server error, a web page or
an unusable answer the next endpoint is asked at once; who is asked after an unusable one is told the form again, since
at temperature 0 the same prompt would get the same answer. A refused key or model takes the endpoint out. One that
failed cools down, longer each time: the others are asked first. A process has at most `concurrency` calls in flight at
an endpoint; requests and tokens a minute are two leaky buckets without burst, shared by all processes. Every try is
paid from the run's budget.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from reward_client.budget import Spending
from reward_client.client import ChatReply, JudgeBadRequest, JudgeBusy, JudgeNoCompletion, post_chat
from reward_client.dialect import Dialect
from reward_client.errors import JudgeFault, JudgeRejected, JudgeUnparsable, JudgeUnreachable
from reward_client.ledger import Ledger
from reward_client.schema import JudgeEndpoint, Usage

logger = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 8.0  # at most, doubled with each try
BUSY_TRIES = 2  # at an endpoint that names no time, before the next endpoint is asked
FIRST_COOL_DOWN_S, MAX_COOL_DOWN_S = 10.0, 160.0
MAX_BLOCK_S = 3600.0  # a Retry-After of days, meant or not, is looked into again
BEHIND_S = 0.05  # a bucket may catch up on so much of a late wake-up
MOST_TOKENS_PER_CHAR = 4  # of byte-level tokenizers
REMINDER = "\n\nYour reply must be the JSON object alone: no word before it and none behind it."
AGAIN = (JudgeUnreachable, JudgeUnparsable, JudgeRejected)  # faults that allow another try
MOST_HIDDEN_TOKENS = 65_536  # of the server's template and of reasoning that it does not show


@dataclass(frozen=True)
class Request:
    """A prompt and the form of its answer. `name` and `schema` describe the JSON object that is asked for."""

    messages: list[dict[str, str]]
    max_tokens: int
    name: str
    schema: dict[str, Any]

    @property
    def again(self) -> Request:
        """The same question, with the form of its answer said once more at the end."""
        *first, last = self.messages
        return replace(self, messages=[*first, {**last, "content": last["content"] + REMINDER}])

    @property
    def most_prompt_tokens(self) -> int:
        """An upper bound for usual tokenizers: one token per character."""
        return sum(len(message["content"]) for message in self.messages)

    def believed(self, counted: Usage) -> Usage:
        """What the server says it counted; nothing where that cannot be, so that no lie drains budget or limits."""
        most_prompt = MOST_TOKENS_PER_CHAR * self.most_prompt_tokens + MOST_HIDDEN_TOKENS
        if counted.prompt_tokens <= most_prompt and counted.completion_tokens <= self.max_tokens + MOST_HIDDEN_TOKENS:
            return counted
        logger.warning("a judge counts %.3g tokens for one call, which is not believed", min(counted.tokens, 10**300))
        return Usage()


@dataclass(frozen=True)
class Answer[T]:
    """What was read from the reply, by whom it was given, and what it cost with all tries."""

    value: T
    reply: ChatReply
    endpoint: JudgeEndpoint
    usage: Usage


@dataclass
class _Endpoint:
    """What this process knows of an endpoint, and its places. `pacing` is held by the one that waits for its turn."""

    places: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[asyncio.Semaphore, asyncio.Lock]] = field(
        default_factory=WeakKeyDictionary
    )
    blocked_until_s: float = 0.0
    cool_until_s: float = 0.0
    n_failures: int = 0

    def learn(self, fault: JudgeFault | None) -> None:
        """How a call ended."""
        if isinstance(fault, JudgeBusy):
            block_s = min(fault.retry_after_s, MAX_BLOCK_S)
            self.blocked_until_s = max(self.blocked_until_s, time.time() + block_s)
        elif isinstance(fault, JudgeNoCompletion | JudgeUnreachable) or type(fault) is JudgeRejected:
            cool_down_s = min(MAX_COOL_DOWN_S, FIRST_COOL_DOWN_S * 2.0**self.n_failures)
            self.n_failures, self.cool_until_s = self.n_failures + 1, time.time() + cool_down_s
        elif fault is None or isinstance(fault, JudgeUnparsable):
            self.n_failures, self.cool_until_s = 0, 0.0


@dataclass(frozen=True)
class Chain:
    """The endpoints in order of preference. `rpm` and `tpm` are of those that say none of their own; 0: no limit."""

    endpoints: Sequence[JudgeEndpoint]
    ledger: Ledger
    spending: Spending
    timeout_s: float
    attempts: int
    concurrency: int
    rpm: int = 0
    tpm: int = 0
    known: dict[str, _Endpoint] = field(default_factory=lambda: defaultdict(_Endpoint), repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Another process knows nothing yet."""
        return {**vars(self), "known": defaultdict(_Endpoint)}

    async def ask(
        self,
        request: Request,
        parse: Callable[[str], T],
        *,
        endpoints: Sequence[JudgeEndpoint] = (),
        again: tuple[type[JudgeFault], ...] = AGAIN,
    ) -> Answer[T]:
        """Ask until `parse` accepts a reply (it raises JudgeUnparsable). `again` are the faults that allow another try.

        Raises the last JudgeFault, whose `usage` is what all tries cost.
        """
        order = sorted(endpoints or self.endpoints, key=lambda one: self.known[one.id].cool_until_s > time.time())
        way = _Way(order, timeout_s=self.timeout_s, attempts=self.attempts)
        while True:
            try:
                return await self._try(way, request.again if way.misread else request, parse)
            except JudgeFault as fault:
                pause_s = way.pause_s(fault) if isinstance(fault, again) else None
                if pause_s is None or pause_s >= way.left_s:
                    fault.usage = way.usage
                    raise
                logger.warning("next try in %.1f s: %s", pause_s, fault)
            await asyncio.sleep(pause_s)

    async def _try(self, way: _Way, request: Request, parse: Callable[[str], T]) -> Answer[T]:
        endpoint, before_s = way.left[0], time.monotonic()
        tokens = request.most_prompt_tokens + request.max_tokens
        async with self._place(endpoint, tokens=tokens, longest_s=way.left_s):
            way.ends_s += time.monotonic() - before_s
            try:
                reply = await self._post(way, endpoint, request)
            except JudgeFault as fault:
                self.known[endpoint.id].learn(fault)
                if isinstance(fault, JudgeBusy) and not fault.retry_after_s:
                    # In its place, which another call would use in vain.
                    await asyncio.sleep(way.take_s(way.jitter_s))
                raise
        self.known[endpoint.id].learn(None)
        if reply.usage.tokens:
            self._count(endpoint, requests=0, tokens=reply.usage.tokens - tokens)
        try:
            return Answer(parse(reply.text), reply, endpoint, way.usage)
        except JudgeUnparsable as exc:
            way.misread = True
            raise JudgeUnparsable(f"judge {endpoint}: {exc}") from None

    @contextlib.asynccontextmanager
    async def _place(self, endpoint: JudgeEndpoint, *, tokens: int, longest_s: float) -> AsyncIterator[None]:
        """Hold one place for a call of about `tokens` tokens, when it is its turn.

        Raises JudgeBusy at once when the endpoint asked to be left alone for longer than `longest_s`.
        """
        known = self.known[endpoint.id]
        places, pacing = known.places.setdefault(
            asyncio.get_running_loop(), (asyncio.Semaphore(self.concurrency), asyncio.Lock())
        )
        async with places:
            async with pacing:
                while (blocked_s := known.blocked_until_s - time.time()) > 0:
                    if blocked_s > longest_s:
                        raise JudgeBusy(f"judge {endpoint}: asks to wait {blocked_s:.0f} s", blocked_s)
                    await asyncio.sleep(min(1.0, blocked_s))
                while (wait_s := self._count(endpoint, requests=1, tokens=tokens)) > 0:
                    await asyncio.sleep(min(1.0, wait_s))
            yield

    def _count(self, endpoint: JudgeEndpoint, *, requests: int, tokens: int) -> float:
        """Seconds until such a call's turn; when it is its turn (0), or no new call, it is counted."""
        limits = {"requests": (requests, endpoint.rpm or self.rpm), "tokens": (tokens, endpoint.tpm or self.tpm)}
        if not any(limit for _, limit in limits.values()):
            return 0.0
        with self.ledger.change(f"turns:{endpoint.id}") as next_s:
            now = time.time()
            wait_s = max(next_s.get(name, 0.0) - now for name, (_, limit) in limits.items() if limit)
            if requests and wait_s > 0:
                return wait_s
            for name, (amount, limit) in limits.items():
                if limit and amount:
                    earliest_s = now - BEHIND_S if requests else 0.0
                    next_s[name] = max(next_s.get(name, 0.0), earliest_s) + amount * 60 / limit
        return 0.0

    async def _post(self, way: _Way, endpoint: JudgeEndpoint, request: Request) -> ChatReply:
        """One answered request; refused parameters are left out and remembered, a rung of the ladder at a time."""
        dialect = Dialect(**(self.ledger.get(f"dialect:{endpoint.id}") or {}))
        ends_s = time.monotonic() + min(way.share_s, way.left_s)
        while True:
            keys = dialect.parameters(max_tokens=request.max_tokens, name=request.name, schema=request.schema)
            payload = {"messages": request.messages, **keys}
            try:
                return await self._pay(way, endpoint, request, payload, max(0.001, ends_s - time.monotonic()))
            except JudgeBadRequest as exc:
                lower = dialect.after_refusal(exc.detail)
                if lower is None:
                    raise
                dialect = lower
                self.remember(endpoint, dialect)

    async def _pay(
        self, way: _Way, endpoint: JudgeEndpoint, request: Request, payload: dict[str, Any], seconds: float
    ) -> ChatReply:
        reserved = self.spending.reserve(
            endpoint, prompt_tokens=request.most_prompt_tokens, completion_tokens=request.max_tokens
        )
        used, counted = Usage(), True
        try:
            reply = await post_chat(endpoint, payload, timeout_s=seconds)
            used = request.believed(reply.usage)
            counted = used.tokens > 0
            return reply.model_copy(update={"usage": used})
        except JudgeFault as fault:
            used = request.believed(fault.usage)
            raise
        finally:
            cost = endpoint.cost(prompt_tokens=used.prompt_tokens, completion_tokens=used.completion_tokens)
            used = used.model_copy(update={"calls": 1, "cost": cost})
            way.usage += used
            if counted:
                self.spending.settle(reserved, used)

    def remember(self, endpoint: JudgeEndpoint, dialect: Dialect) -> None:
        """Tell all processes how to write to this endpoint."""
        self.ledger.put(f"dialect:{endpoint.id}", asdict(dialect))


class _Way:
    """One question on its way: the endpoints left, the first of them next, the time left, and what it has cost."""

    def __init__(self, endpoints: list[JudgeEndpoint], *, timeout_s: float, attempts: int) -> None:
        self.left, self.usage, self.misread = endpoints, Usage(), False
        self.ends_s = time.monotonic() + timeout_s
        self._tries_left = attempts * len(endpoints)
        # What one try may take: a server that hangs leaves time for a second try, or for the other endpoints.
        self.share_s = timeout_s / (1 if self._tries_left == 1 else max(2, len(endpoints)))
        self._n_tries = self._n_busy = 0

    @property
    def left_s(self) -> float:
        """Seconds until the whole question must be answered."""
        return max(0.0, self.ends_s - time.monotonic())

    def take_s(self, pause_s: float) -> float:
        """This pause; or none, and the end of the question, where it would take all the time that is left."""
        if pause_s < self.left_s:
            return pause_s
        self.ends_s = time.monotonic()
        return 0.0

    @property
    def jitter_s(self) -> float:
        """A random pause, longer with each try."""
        return random.uniform(0, min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0**self._n_tries))

    def pause_s(self, fault: JudgeFault) -> float | None:
        """Seconds until the next try, of the first of `left`; None where nobody is left, or no try."""
        self._n_tries += 1
        here, *others = self.left
        if isinstance(fault, JudgeRejected):
            self.left = others
            return 0.0 if others else None
        is_busy, asked_s = isinstance(fault, JudgeBusy), getattr(fault, "retry_after_s", 0.0)
        if asked_s and (pause_s := asked_s + self.jitter_s / 10) < self.left_s:
            return pause_s
        if is_busy and not asked_s:  # it has paused in its place
            self._n_busy += 1
            self.left = self.left if self._n_busy % BUSY_TRIES else [*others, here]
            return 0.0
        self._tries_left -= 1
        self.left = [*others, here]
        if self._tries_left == 0 or (is_busy and not others):
            return None
        return 0.0 if others else self.jitter_s
