"""The answers of requests that came with a key, in the same turn as what they did; the last KEPT of them."""

from __future__ import annotations

import json
from typing import Any

from agl_plugin.store.turns import Turns

KEPT = 1000


class Answers:
    """Answers by key."""

    def __init__(self, database: Turns) -> None:
        self._database = database
        columns = f"id {database.ROW_ID}, key TEXT UNIQUE, answer TEXT NOT NULL"
        database.make(f"CREATE TABLE IF NOT EXISTS answers ({columns})")

    def found(self, key: str) -> Any | None:
        """The answer that the request had, or None. Within a turn."""
        row = self._database.read("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else None

    def keep(self, key: str, answer: Any) -> None:
        """Within a turn."""
        self._database.write("INSERT INTO answers (key, answer) VALUES (?, ?)", (key, json.dumps(answer)))
        self._database.write("DELETE FROM answers WHERE id <= (SELECT max(id) FROM answers) - ?", (KEPT,))
