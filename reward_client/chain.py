"""Asking the endpoints in order until one gives a usable answer: the one retry loop of the judge.

Guarantees: at most `attempts` failed tries per endpoint, all within `timeout_s`, not counting the wait for a place. A
429 is no failed try: it stays with its endpoint (a growing pause, or the server's Retry-After) as long as that fits,
and where there is another endpoint, for one more try without Retry-After. After a hang, a server error, a web page or
an unusable answer the next endpoint is asked at once. A refused key or model takes the endpoint out. Every try is paid
from the run's budget.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

import tenacity

from reward_client.budget import Spending
from reward_client.client import ChatReply, JudgeBadRequest, JudgeBusy, post_chat
from reward_client.dialect import Dialect
from reward_client.errors import (
    JudgeBudgetSpent,
    JudgeFault,
    JudgeFolderFault,
    JudgeRejected,
    JudgeUnparsable,
    JudgeUnreachable,
)
from reward_client.ledger import Ledger
from reward_client.limiter import Limiter
from reward_client.schema import JudgeEndpoint, Usage

logger = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.5, 8.0
BUSY_TRIES = 2  # at an endpoint that names no time, before the next endpoint is asked
MOST_TOKENS_PER_CHAR = 4  # of byte-level tokenizers
MOST_HIDDEN_TOKENS = 65_536  # of the server's template and of reasoning that it does not show
FINAL = (JudgeBudgetSpent, JudgeFolderFault)


@dataclass(frozen=True)
class Request:
    """A prompt and the form of its answer. `name` and `schema` describe the JSON object that is asked for."""

    messages: list[dict[str, str]]
    max_tokens: int
    name: str
    schema: dict[str, Any]

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
class Answer(Generic[T]):
    """What was read from the reply, by whom it was given, and what it cost with all tries."""

    value: T
    reply: ChatReply
    endpoint: JudgeEndpoint
    usage: Usage


class Chain:
    """The endpoints in order of preference, with what their processes share."""

    def __init__(
        self,
        endpoints: Sequence[JudgeEndpoint],
        *,
        ledger: Ledger,
        limiter: Limiter,
        spending: Spending,
        timeout_s: float,
        attempts: int,
    ) -> None:
        self.endpoints = list(endpoints)
        self.attempts = attempts
        self.timeout_s = timeout_s
        self._ledger = ledger
        self._limiter = limiter
        self._spending = spending

    async def ask(
        self,
        request: Request,
        parse: Callable[[str], T],
        *,
        endpoints: Sequence[JudgeEndpoint] = (),
        again: tuple[type[JudgeFault], ...] = (JudgeUnreachable, JudgeUnparsable, JudgeRejected),
    ) -> Answer[T]:
        """Ask until `parse` accepts a reply (it raises JudgeUnparsable). `again` are the faults that allow another try.

        Raises the last JudgeFault, whose `usage` is what all tries cost.
        """
        asking = _Asking(self, list(endpoints) or self.endpoints, again)
        retrying = tenacity.AsyncRetrying(
            stop=asking.is_over,
            wait=asking.pause_s,
            retry=tenacity.retry_if_exception(asking.goes_on),
            before_sleep=_log_retry,
            reraise=True,
        )
        try:
            async for attempt in retrying:
                with attempt:
                    return await self._try(asking, request, parse)
        except JudgeFault as fault:
            fault.usage = asking.usage
            raise
        raise AssertionError("tenacity ends with a result or an exception")

    def order(self, endpoints: Sequence[JudgeEndpoint]) -> list[JudgeEndpoint]:
        """The endpoints in the order to ask: those that cool down come last."""
        return sorted(endpoints, key=self._limiter.cools_down) if len(endpoints) > 1 else list(endpoints)

    async def _try(self, asking: _Asking, request: Request, parse: Callable[[str], T]) -> Answer[T]:
        endpoint, before_s = asking.left[0], time.monotonic()
        tokens = request.most_prompt_tokens + request.max_tokens
        async with self._limiter.slot(endpoint, tokens=tokens, longest_s=asking.left_s) as slot:
            asking.deadline_s += time.monotonic() - before_s
            reply = await self._post(asking, endpoint, request)
            slot.tokens = reply.usage.tokens or tokens
        try:
            if reply.finish_reason == "length":
                raise JudgeUnparsable(f"the answer was cut: {reply.text[:120]!r}")
            return Answer(parse(reply.text), reply, endpoint, asking.usage)
        except JudgeUnparsable as exc:
            raise JudgeUnparsable(f"judge {endpoint}: {exc} (finish_reason {reply.finish_reason})") from None

    async def _post(self, asking: _Asking, endpoint: JudgeEndpoint, request: Request) -> ChatReply:
        """One answered request; refused parameters are left out and remembered, a rung of the ladder at a time."""
        dialect, ends_s = self.dialect(endpoint), time.monotonic() + asking.share_s
        while True:
            keys = dialect.parameters(max_tokens=request.max_tokens, name=request.name, schema=request.schema)
            payload = {"messages": request.messages, **keys}
            try:
                return await self._pay(asking, endpoint, request, payload, max(0.001, ends_s - time.monotonic()))
            except JudgeBadRequest as exc:
                lower = dialect.after_refusal(exc.detail)
                if lower is None:
                    raise
                dialect = lower
                self.remember(endpoint, dialect)

    async def _pay(
        self, asking: _Asking, endpoint: JudgeEndpoint, request: Request, payload: dict[str, Any], seconds: float
    ) -> ChatReply:
        reserved = self._spending.reserve(
            endpoint, prompt_tokens=request.most_prompt_tokens, completion_tokens=request.max_tokens
        )
        used, counted = Usage(), True
        try:
            asking.usage += Usage(calls=1)
            reply = await post_chat(endpoint, payload, timeout_s=seconds)
            used = request.believed(reply.usage)
            counted = used.tokens > 0
            return reply.model_copy(update={"usage": used})
        except JudgeFault as fault:
            used = request.believed(fault.usage)
            raise
        finally:
            cost = endpoint.cost(prompt_tokens=used.prompt_tokens, completion_tokens=used.completion_tokens)
            used = used.model_copy(update={"cost": cost})
            asking.usage += used
            if counted:
                self._spending.settle(reserved, used)

    def dialect(self, endpoint: JudgeEndpoint) -> Dialect:
        """What is known of the endpoint; json_schema first where nothing is."""
        return Dialect(**(self._ledger.get(f"dialect:{endpoint.id}") or {}))

    def remember(self, endpoint: JudgeEndpoint, dialect: Dialect) -> None:
        """Tell all processes how to write to this endpoint."""
        self._ledger.put(f"dialect:{endpoint.id}", asdict(dialect))


class _Asking:
    """One question on its way: the endpoints left, the time left, and what it has cost so far."""

    def __init__(self, chain: Chain, endpoints: Sequence[JudgeEndpoint], again: tuple[type[JudgeFault], ...]) -> None:
        self.left = chain.order(endpoints)
        self.usage = Usage()
        self.deadline_s = time.monotonic() + chain.timeout_s
        self._attempts = chain.attempts
        # A server that hangs leaves time for a second try, or for the other endpoints.
        self._most_tries = chain.attempts * len(endpoints)
        self._most_share_s = chain.timeout_s / (1 if self._most_tries == 1 else max(2, len(endpoints)))
        self._again = again
        self._busy: Counter[str] = Counter()
        self._n_failed = 0
        self._pauses = False

    @property
    def left_s(self) -> float:
        """Seconds until the whole question must be answered."""
        return max(0.0, self.deadline_s - time.monotonic())

    @property
    def share_s(self) -> float:
        """Seconds that one try may take."""
        return min(self._most_share_s, self.left_s)

    def goes_on(self, fault: BaseException) -> bool:
        """Choose who is asked next after `fault`; False when nobody should be."""
        if not isinstance(fault, self._again) or isinstance(fault, FINAL):
            return False
        here = self.left[0]
        if isinstance(fault, JudgeRejected):
            del self.left[0]
            self._pauses = False
            return bool(self.left)
        is_busy = isinstance(fault, JudgeBusy)
        self._busy[here.id] += is_busy
        self._n_failed += not is_busy
        if len(self.left) > 1 and not self._stays(fault):
            self.left.append(self.left.pop(0))
        all_busy = all(self._busy[endpoint.id] >= BUSY_TRIES for endpoint in self.left)
        self._pauses = self.left[0] is here or (is_busy and all_busy)
        return True

    def _stays(self, fault: BaseException) -> bool:
        if not isinstance(fault, JudgeBusy) or fault.retry_after_s > self.left_s:
            return False
        return self._busy[self.left[0].id] < (self._attempts if fault.retry_after_s else BUSY_TRIES)

    def pause_s(self, state: tenacity.RetryCallState) -> float:
        """None before another endpoint; Retry-After with a little jitter, or a growing jittered pause."""
        if not self._pauses:
            return 0.0
        fault = state.outcome.exception() if state.outcome else None
        jitter_s = tenacity.wait_random_exponential(multiplier=FIRST_BACKOFF_S, max=MAX_BACKOFF_S)(state)
        asked_s = fault.retry_after_s if isinstance(fault, JudgeBusy) else 0.0
        return asked_s + jitter_s / 10 if asked_s else jitter_s

    def is_over(self, state: tenacity.RetryCallState) -> bool:
        """True when no try is left, or the next pause would outlast the time left."""
        return self._n_failed >= self._most_tries or state.upcoming_sleep >= self.left_s


def _log_retry(state: tenacity.RetryCallState) -> None:
    fault = state.outcome.exception() if state.outcome else None
    logger.warning("attempt %d, next in %.1f s: %s", state.attempt_number, state.upcoming_sleep, fault)
