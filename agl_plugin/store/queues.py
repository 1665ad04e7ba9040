"""agent-lightning's queue and counters as tables of a database.

Each operation is a turn of its own unless a turn is under way (turns.py). Errors are those of agent-lightning's memory
collections. Who counts holds the name of what it counts: counters are read, and then written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agentlightning.store.collection.base import KeyValue, Queue, ensure_numeric, tracked
from agentlightning.utils.metrics import MetricsBackend
from pydantic import TypeAdapter

from agl_plugin.store.tables import Named
from agl_plugin.store.turns import Turns


class TableQueue[Q](Named, Queue[Q]):
    """Items of `kind`, first in, first out."""

    def __init__(self, database: Turns, name: str, kind: type[Q], *, tracker: MetricsBackend | None = None) -> None:
        super().__init__(tracker=tracker)
        self._database, self._name, self._kind = database, name, kind
        self._json = TypeAdapter(kind)
        database.make(f'CREATE TABLE IF NOT EXISTS "{name}" (id {database.ROW_ID}, item TEXT NOT NULL)')
        database.make(f'CREATE INDEX IF NOT EXISTS "{name}_item" ON "{name}" (item)')

    def item_type(self) -> type[Q]:
        return self._kind

    def _text(self, item: Q) -> str:
        if not isinstance(item, self._kind):
            raise TypeError(f"Expected item of type {self._kind.__name__}, got {type(item).__name__}")
        return json.dumps(self._json.dump_python(item))

    @tracked("has")
    async def has(self, item: Q) -> bool:
        text = self._text(item)
        async with self._database.turn(read_only=True):
            return bool(await self._database.read(f'SELECT 1 FROM "{self._name}" WHERE item = ? LIMIT 1', (text,)))

    @tracked("enqueue")
    async def enqueue(self, items: Sequence[Q]) -> Sequence[Q]:
        texts = [self._text(item) for item in items]
        async with self._database.turn():
            if not await self._database.copied(self._name, "item", [(text,) for text in texts]):
                for text in texts:
                    await self._database.write(f'INSERT INTO "{self._name}" (item) VALUES (?)', (text,))
        return items

    @tracked("dequeue")
    async def dequeue(self, limit: int = 1) -> Sequence[Q]:
        """The first ones that no other turn is taking."""
        sql = (
            f'WITH first AS MATERIALIZED (SELECT id FROM "{self._name}" ORDER BY id LIMIT ? '
            f"{self._database.UNCLAIMED}) "
            f'DELETE FROM "{self._name}" WHERE id IN (SELECT id FROM first) RETURNING id, item'
        )
        async with self._database.turn():
            rows = await self._database.write(sql, (max(limit, 0),))
        return [self._item(text) for _, text in sorted(rows)]

    @tracked("peek")
    async def peek(self, limit: int = 1) -> Sequence[Q]:
        sql = f'SELECT item FROM "{self._name}" ORDER BY id LIMIT ?'
        async with self._database.turn(read_only=True):
            return [self._item(text) for (text,) in await self._database.read(sql, (max(limit, 0),))]

    def _item(self, text: str) -> Q:
        return self._json.validate_python(json.loads(text))


class TableKeyValue[K, V](Named, KeyValue[K, V]):
    """Values of JSON by keys of JSON."""

    def __init__(self, database: Turns, name: str, *, tracker: MetricsBackend | None = None) -> None:
        super().__init__(tracker=tracker)
        self._database, self._name = database, name
        database.make(f'CREATE TABLE IF NOT EXISTS "{name}" (key TEXT PRIMARY KEY, value TEXT NOT NULL)')

    async def _read(self, key: K) -> str | None:
        """The JSON of a value, which the turn may change."""
        rows = await self._database.read(f'SELECT value FROM "{self._name}" WHERE key = ?', (json.dumps(key),))
        return rows[0][0] if rows else None

    async def _write(self, key: K, value: V) -> None:
        sql = f'INSERT INTO "{self._name}" (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = ?'
        text = json.dumps(value)
        await self._database.write(sql, (json.dumps(key), text, text))

    @tracked("has")
    async def has(self, key: K) -> bool:
        async with self._database.turn(read_only=True):
            return await self._read(key) is not None

    @tracked("get")
    async def get(self, key: K, default: V | None = None) -> V | None:
        async with self._database.turn(read_only=True):
            text = await self._read(key)
        return default if text is None else json.loads(text)

    @tracked("set")
    async def set(self, key: K, value: V) -> None:
        async with self._database.turn():
            await self._write(key, value)

    @tracked("inc")
    async def inc(self, key: K, amount: V) -> V:
        async with self._database.turn():
            present = await self._number(key, amount, "amount")
            value: Any = amount if present is None else present + amount
            await self._write(key, value)
            return value

    @tracked("chmax")
    async def chmax(self, key: K, value: V) -> V:
        async with self._database.turn():
            present = await self._number(key, value, "value")
            if present is not None and not value > present:  # pyright: ignore[reportOperatorIssue]
                return present
            await self._write(key, value)
            return value

    async def _number(self, key: K, number: V, description: str) -> Any:
        """The number of a key, or None. Raises TypeError where it, or the one that is given, is none."""
        ensure_numeric(number, description=description)
        text = await self._read(key)
        if text is None:
            return None
        present = json.loads(text)
        ensure_numeric(present, description=f"value for key {key!r}")
        return present

    @tracked("pop")
    async def pop(self, key: K, default: V | None = None) -> V | None:
        async with self._database.turn():
            text = await self._read(key)
            if text is None:
                return default
            await self._database.write(f'DELETE FROM "{self._name}" WHERE key = ?', (json.dumps(key),))
            return json.loads(text)
