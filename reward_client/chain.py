"""Asking the endpoints in order until one gives a usable answer: the one retry loop of the judge.

Guarantees: at most `attempts` failed tries per endpoint, all within `timeout_s`, not counting the wait for a place. A
429 is no failed try: it stays with its endpoint (a growing pause, or the server's Retry-After) as long as that fits,
and where there is another endpoint, for one more try without Retry-After. After a hang, a server error, a web page or
an unusable answer the next endpoint is asked at once; who is asked after an unusable one is told the form again, since
at temperature 0 the same prompt would get the same answer. A refused key or model takes the endpoint out. Every try is
paid from the run's budget.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import tenacity

from reward_client.budget import Spending
from reward_client.client import ChatReply, JudgeBadRequest, JudgeBusy, post_chat
from reward_client.dialect import Dialect
from reward_client.errors import JudgeFault, JudgeRejected, JudgeUnparsable, JudgeUnreachable
from reward_client.ledger import Ledger
from reward_client.limiter import Limiter
from reward_client.schema import JudgeEndpoint, Usage

logger = logging.getLogger(__name__)
T = TypeVar("T")

BACKOFF = tenacity.wait_random_exponential(multiplier=0.5, max=8.0)  # seconds
BUSY_TRIES = 2  # at an endpoint that names no time, before the next endpoint is asked
MOST_TOKENS_PER_CHAR = 4  # of byte-level tokenizers
REMINDER = "\n\nYour reply must be the JSON object alone: no word before it and none behind it."
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


@dataclass(frozen=True)
class Chain:
    """The endpoints in order of preference, with what their processes share."""

    endpoints: Sequence[JudgeEndpoint]
    ledger: Ledger
    limiter: Limiter
    spending: Spending
    timeout_s: float
    attempts: int

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
        left = list(endpoints or self.endpoints)
        if len(left) > 1:
            left.sort(key=self.limiter.cools_down)
        way = _Way(left, timeout_s=self.timeout_s, attempts=self.attempts)
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(lambda fault: isinstance(fault, again) and way.goes_on(fault)),
            wait=way.pause_s,
            stop=way.is_over,
            before_sleep=_log_retry,
            reraise=True,
        )
        try:
            return await retrying(self._try, way, request, parse)
        except JudgeFault as fault:
            fault.usage = way.usage
            raise

    async def _try(self, way: _Way, request: Request, parse: Callable[[str], T]) -> Answer[T]:
        endpoint, before_s = way.left[0], time.monotonic()
        request = request.again if way.misread else request
        tokens = request.most_prompt_tokens + request.max_tokens
        async with self.limiter.place(endpoint, tokens=tokens, longest_s=way.left_s) as place:
            way.ends_s += time.monotonic() - before_s
            reply = await self._post(way, endpoint, request)
            place.tokens = reply.usage.tokens or tokens
        try:
            return Answer(parse(reply.text), reply, endpoint, way.usage)
        except JudgeUnparsable as exc:
            way.misread = True
            raise JudgeUnparsable(f"judge {endpoint}: {exc}") from None

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
        self.left = endpoints
        self.usage = Usage()
        self.ends_s = time.monotonic() + timeout_s
        self._attempts = attempts
        self._tries_left = attempts * len(endpoints)
        # What one try may take: a server that hangs leaves time for a second try, or for the other endpoints.
        self.share_s = timeout_s / (1 if self._tries_left == 1 else max(2, len(endpoints)))
        self._busy: Counter[str] = Counter()
        self._pauses = False
        self.misread = False

    @property
    def left_s(self) -> float:
        """Seconds until the whole question must be answered."""
        return max(0.0, self.ends_s - time.monotonic())

    def goes_on(self, fault: BaseException) -> bool:
        """Choose who is asked next after `fault`; False when nobody is left."""
        here, is_busy = self.left[0], isinstance(fault, JudgeBusy)
        if isinstance(fault, JudgeRejected):
            self._pauses = False
            self.left = self.left[1:]
            return bool(self.left)
        self._busy[here.id] += is_busy
        self._tries_left -= not is_busy
        if not (isinstance(fault, JudgeBusy) and self._stays(fault)):
            self.left = [*self.left[1:], here]
        worn_out = is_busy and all(self._busy[endpoint.id] >= BUSY_TRIES for endpoint in self.left)
        self._pauses = self.left[0] is here or worn_out
        return True

    def _stays(self, fault: JudgeBusy) -> bool:
        if fault.retry_after_s > self.left_s:
            return False
        return self._busy[self.left[0].id] < (self._attempts if fault.retry_after_s else BUSY_TRIES)

    def pause_s(self, state: tenacity.RetryCallState) -> float:
        """None before another endpoint; Retry-After with a little jitter, or a growing jittered pause."""
        fault, jitter_s = _fault_of(state), BACKOFF(state)
        asked_s = fault.retry_after_s if isinstance(fault, JudgeBusy) else 0.0
        return (asked_s + jitter_s / 10 if asked_s else jitter_s) if self._pauses else 0.0

    def is_over(self, state: tenacity.RetryCallState) -> bool:
        """True when no try is left, or the next pause would outlast the time left."""
        return self._tries_left <= 0 or state.upcoming_sleep >= self.left_s


def _fault_of(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def _log_retry(state: tenacity.RetryCallState) -> None:
    logger.warning("attempt %d, next in %.1f s: %s", state.attempt_number, state.upcoming_sleep, _fault_of(state))
