"""Requests that can be sent again: a key by which the store knows one that it has answered.

A client that got no answer does not know whether its request was done. It sends the same key again, and a store that
lasts gives the answer of the first time, in the same turn as what it did; it keeps the last `N_ANSWERS` of its
database, and up to as many before them. Stores that know no keys do the request again.
"""

from __future__ import annotations

import json
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agl_plugin.store.tables import Turns

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


class Answers:
    """Answers by key."""

    def __init__(self, database: Turns) -> None:
        self._database = database
        columns = f"id {database.ROW_ID}, key TEXT UNIQUE, answer TEXT NOT NULL"
        database.make(f"CREATE TABLE IF NOT EXISTS answers ({columns})")

    async def find(self, key: str) -> Any | None:
        """The answer that the request had, or None. Within a turn that holds the key."""
        rows = await self._database.read("SELECT answer FROM answers WHERE key = ?", (key,))
        return json.loads(rows[0][0]) if rows else None

    async def keep(self, key: str, answer: Any) -> None:
        """Within a turn that holds the key."""
        sql = "INSERT INTO answers (key, answer) VALUES (?, ?) RETURNING id"
        ((number,),) = await self._database.write(sql, (key, json.dumps(answer)))
        n_kept = self._database.N_ANSWERS
        if number % n_kept == 0:
            await self._database.write("DELETE FROM answers WHERE id <= ?", (number - n_kept,))
