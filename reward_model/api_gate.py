"""What a request must pass before a route sees it: token, size, time, and the counting of all answers.

Guarantees: the token is compared in constant time, before the body is read; at most `max_body_bytes` of a body are
kept; a body that does not arrive within `body_timeout_s` ends with 408; nothing is logged of headers or bodies.
Not covered: TLS and rate limits per client; put a proxy in front for those.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reward_model.api_metrics import Metrics

# A client that is still sending would lose our answer in a reset connection: read on up to so many times the limit.
READ_ON = 8


class Gate:
    """ASGI middleware around the API. `open_paths` need no token; an empty token lets everybody in."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        open_paths: frozenset[str],
        known_paths: frozenset[str],
        max_body_bytes: int,
        body_timeout_s: float,
        metrics: Metrics,
    ) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode() if token else b""
        self._open = open_paths
        self._known = known_paths
        self._max_body_bytes = max_body_bytes
        self._body_timeout_s = body_timeout_s
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._checked(scope, receive, counted)
        finally:
            path = scope["path"] if scope["path"] in self._known else "other"
            self._metrics.requests.labels(path, str(status)).inc()
            self._metrics.request_seconds.labels(path).observe(time.perf_counter() - started)

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._expected and scope["path"] not in self._open and not self._has_token(scope):
            await _refuse(send, 401, "a valid bearer token is needed", {"www-authenticate": "Bearer"})
            return
        try:
            async with asyncio.timeout(self._body_timeout_s):
                body = await self._body(receive)
        except TimeoutError:
            await _refuse(
                send, 408, f"the body did not arrive within {self._body_timeout_s:g} s", {"connection": "close"}
            )
            return
        if body is None:
            await _refuse(send, 413, f"the body is larger than {self._max_body_bytes} bytes; send smaller batches")
            return
        await self._app(scope, _replay(body, receive), send)

    def _has_token(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        # The comparison must take as long for a wrong token as for a missing one.
        return hmac.compare_digest(given[0] if len(given) == 1 else b"", self._expected)

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body, or None when it is too large."""
        body, n_bytes = bytearray(), 0
        while True:
            message = await receive()
            chunk = message.get("body", b"")
            n_bytes += len(chunk)
            if n_bytes <= self._max_body_bytes:
                body += chunk
            more = message["type"] == "http.request" and message.get("more_body", False)
            if not more or n_bytes > READ_ON * self._max_body_bytes:
                return bytes(body) if n_bytes <= self._max_body_bytes else None


def _replay(body: bytes, receive: Receive) -> Receive:
    """A receive channel that gives the body once, then what really comes."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _refuse(send: Send, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
    body = json.dumps({"detail": detail}).encode()
    all_headers = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    start = {"type": "http.response.start", "status": status}
    await send({**start, "headers": [(name.encode(), value.encode()) for name, value in all_headers.items()]})
    await send({"type": "http.response.body", "body": body})
