"""What a request must pass before a route sees it: token, size, time, and the counting of all answers.

Guarantees: the token, a bearer token or the password of basic authentication, is compared in constant time, before the
body is read; at most `max_body_bytes` of a body are kept; a body that does not arrive within `body_timeout_s` ends with
408; a request whose client went away is stopped; a server that must end before it can answer says 503; nothing is
logged of headers or bodies.
Not covered: TLS, and rate limits per client; put a proxy in front for those.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foundation.errors import AgentGRPOError, UserError
from foundation.http_body import BodyRefused, body_of
from foundation.net import is_own_host

GONE = 499  # never sent; as proxies count a client that did not wait for its answer
RETRY_AFTER_S = 1
MIN_TOKEN_CHARS = 16
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class RequestMetrics:
    """What every server counts of its requests for Prometheus, in a registry of its own.

    Paths are labels only where they are routes; all others count as `other`, so that a scanner cannot blow up the
    series.
    """

    def __init__(self, prefix: str) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(f"{prefix}_requests", "answered requests", ["path", "status"], registry=registry)
        self.request_seconds = Histogram(
            f"{prefix}_request_seconds", "from head to answer", ["path"], buckets=SECONDS, registry=registry
        )

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)


def checked_token(token: str, *, host: str, variable: str) -> str:
    """The token of a variable. Raises UserError: it is weak, or missing where strangers can connect to `host`."""
    token = token.strip()
    if not token and not is_own_host(host):
        raise UserError(
            f"--host {host}: others can connect there, so a token is needed; set {variable} (in .env) to "
            f"{MIN_TOKEN_CHARS} random characters or more"
        )
    if token and (len(token) < MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable() or " " in token):
        raise UserError(
            f"{variable}: must be {MIN_TOKEN_CHARS} or more printable ASCII characters without spaces (its value is "
            "not shown); for example the output of `openssl rand -hex 24`"
        )
    return token


@dataclass
class Traffic:
    """Requests whose body was read, and what became of them. `is_ending`: no new connection is taken any more."""

    accepted: int = 0
    answered: int = 0
    gone: int = 0
    is_ending: bool = False

    def __str__(self) -> str:
        lost = self.accepted - self.answered - self.gone
        counts = f"{self.accepted} requests accepted, {self.answered} answered, {self.gone} clients gone"
        return f"{counts}, {lost} not answered"


type ErrorBody = Callable[[int, str], dict[str, Any]]


class _Refused(AgentGRPOError):
    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        self.answer: Callable[[ErrorBody], ASGIApp] = lambda body: JSONResponse(body(status, detail), status, headers)


class _Gone(AgentGRPOError):
    """The client closed the connection."""


@dataclass(eq=False)
class Gate:
    """ASGI middleware around the API. `open_paths` need no token; an empty token lets everybody in."""

    app: ASGIApp
    token: str = field(repr=False)
    open_paths: frozenset[str]
    known_paths: frozenset[str]
    max_body_bytes: int
    body_timeout_s: float
    metrics: RequestMetrics
    traffic: Traffic
    error_body: ErrorBody = lambda _, text: {"detail": text}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0
        is_counted = False

        def count() -> None:
            nonlocal is_counted
            path = scope["path"] if scope["path"] in self.known_paths else "other"
            if not is_counted:
                self.metrics.requests.labels(path, str(status or 500)).inc()
                self.metrics.request_seconds.labels(path).observe(time.perf_counter() - started)
            is_counted = True

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.body" and not message.get("more_body"):
                count()  # before it is sent: who has the answer finds it in /metrics
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.traffic.is_ending:
                    message = {**message, "headers": [*message.get("headers", []), (b"connection", b"close")]}
            await send(message)

        try:
            await self._pass(scope, receive, counted)
        except _Refused as no:
            await no.answer(self.error_body)(scope, receive, counted)
        except _Gone:
            status = GONE
        except asyncio.CancelledError:
            # The longest wait for accepted requests is over: what has begun cannot be taken back, the rest is told.
            if not status:
                text = "the server ends; try again later"
                no = _Refused(503, text, {"Retry-After": str(RETRY_AFTER_S)})
                await no.answer(self.error_body)(scope, receive, counted)
        finally:
            count()

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.token and scope["path"] not in self.open_paths and not self._has_token(scope):
            raise _Refused(401, "a valid bearer token is needed", {"WWW-Authenticate": 'Bearer, Basic realm="token"'})
        try:
            body = await body_of(receive, most_bytes=self.max_body_bytes, within_s=self.body_timeout_s)
        except BodyRefused as no:
            raise _Refused(no.code, str(no), {"Connection": "close"}) from None
        if body is None:
            raise _Gone
        self.traffic.accepted += 1
        try:
            await self._serve(scope, body, receive, send)
        except _Gone:
            self.traffic.gone += 1
            raise
        self.traffic.answered += 1

    def _has_token(self, scope: Scope) -> bool:
        headers = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = (headers[0] if len(headers) == 1 else b"").partition(b" ")
        if is_basic := scheme.lower() == b"basic":  # a browser's way: name and password
            token = _password(token)
        # Digests have one length, so the comparison takes as long for any token as for none.
        is_right = hmac.compare_digest(_digest(token), _digest(self.token.encode()))
        return is_right and (is_basic or scheme.lower() == b"bearer")

    async def _serve(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Let the application answer; stop it when the client goes away, so that nobody waits for its items."""
        gone = asyncio.ensure_future(receive())  # nothing else can come after the body
        answer = asyncio.ensure_future(self.app(scope, _replay(body, gone), send))
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise _Gone
            await answer
        finally:
            for task in (gone, answer):
                task.cancel()
            await asyncio.gather(gone, answer, return_exceptions=True)


def _password(credentials: bytes) -> bytes:
    """Of NAME:PASSWORD in base64; empty where it is none."""
    try:
        return base64.b64decode(credentials, validate=True).partition(b":")[2]
    except ValueError:
        return b""


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def _replay(body: bytes, after: asyncio.Future[Message]) -> Receive:
    """A receive channel that gives the body once, then what comes after it."""
    is_sent = False

    async def replay() -> Message:
        nonlocal is_sent
        if is_sent:
            return await asyncio.shield(after)
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
