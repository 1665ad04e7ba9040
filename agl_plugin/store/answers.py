"""The answers of requests that came with a key, in the same turn as what they did.

The last `N_ANSWERS` of the database are kept, and up to as many before them.
"""

from __future__ import annotations

import json
from typing import Any

from agl_plugin.store.turns import Turns


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
        kept = self._database.N_ANSWERS
        if number % kept == 0:
            await self._database.write("DELETE FROM answers WHERE id <= ?", (number - kept,))
