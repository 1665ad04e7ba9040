"""agent-lightning's queue and counters as tables of a database, as far as its store asks for them.

Each operation is a turn of its own unless a turn is under way (database.py). Who counts holds the name of what it
counts: counters are read, and then written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from agentlightning.store.collection.base import KeyValue, Queue

from agl_plugin.store.tables import Named, Turns


class TableQueue(Named, Queue[str]):
    """Names, first in, first out."""

    def __init__(self, database: Turns, name: str) -> None:
        super().__init__(database, name)
        database.make(f'CREATE TABLE IF NOT EXISTS "{name}" (id {database.ROW_ID}, item TEXT NOT NULL)')
        database.make(f'CREATE INDEX IF NOT EXISTS "{name}_item" ON "{name}" (item)')

    async def has(self, item: str) -> bool:
        sql = f'SELECT 1 FROM "{self._name}" WHERE item = ? LIMIT 1'
        async with self._database.turn(read_only=True):
            return bool(await self._database.read(sql, (json.dumps(item),)))

    async def enqueue(self, items: Sequence[str]) -> Sequence[str]:
        rows = [(json.dumps(item),) for item in items]
        async with self._database.turn():
            if not await self._database.copied(self._name, "item", rows):
                for row in rows:
                    await self._database.write(f'INSERT INTO "{self._name}" (item) VALUES (?)', row)
        return items

    async def dequeue(self, limit: int = 1) -> Sequence[str]:
        """The first ones that no other turn is taking."""
        sql = (
            f'WITH first AS MATERIALIZED (SELECT id FROM "{self._name}" ORDER BY id LIMIT ? '
            f"{self._database.UNCLAIMED}) "
            f'DELETE FROM "{self._name}" WHERE id IN (SELECT id FROM first) RETURNING id, item'
        )
        async with self._database.turn():
            rows = await self._database.write(sql, (max(limit, 0),))
        return [json.loads(text) for _, text in sorted(rows)]


class Counters(Named, KeyValue[str, int]):
    """Numbers by name, both as JSON."""

    def __init__(self, database: Turns, name: str) -> None:
        super().__init__(database, name)
        database.make(f'CREATE TABLE IF NOT EXISTS "{name}" (key TEXT PRIMARY KEY, value TEXT NOT NULL)')

    async def _read(self, key: str) -> int | None:
        rows = await self._database.read(f'SELECT value FROM "{self._name}" WHERE key = ?', (json.dumps(key),))
        return json.loads(rows[0][0]) if rows else None

    async def _write(self, key: str, value: int) -> None:
        sql = f'INSERT INTO "{self._name}" (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = ?'
        text = json.dumps(value)
        await self._database.write(sql, (json.dumps(key), text, text))

    async def inc(self, key: str, amount: int) -> int:
        async with self._database.turn():
            value = (await self._read(key) or 0) + amount
            await self._write(key, value)
            return value

    async def chmax(self, key: str, value: int) -> int:
        async with self._database.turn():
            present = await self._read(key)
            if present is not None and present >= value:
                return present
            await self._write(key, value)
            return value
