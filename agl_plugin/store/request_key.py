"""Requests that can be sent again: a key by which the store knows one that it has answered.

A client that got no answer does not know whether its request was done. It sends the same key again, and a store that
lasts gives the answer of the first time. Stores that know no keys do the request again.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

HEADER = "Idempotency-Key"
LONGEST = 64

key_of_request: ContextVar[str] = ContextVar("key_of_request", default="")


class Keyed:
    """An ASGI application that finds the key of its request in `key_of_request`."""

    def __init__(self, app: Any) -> None:
        self._app, self._name = app, HEADER.lower().encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        keys = [value.decode("latin-1") for name, value in scope.get("headers", []) if name == self._name]
        token = key_of_request.set(keys[0] if keys and len(keys[0]) <= LONGEST else "")
        try:
            await self._app(scope, receive, send)
        finally:
            key_of_request.reset(token)
