"""agent-lightning's collections as tables of a database: items of a model, found by key, filter and order.

Guarantees: each operation is a turn of its own unless a turn is under way (database.py), so it is all or nothing.
Results, orders and errors are those of agent-lightning's memory collections; what SQL does not express as Python means
it is answered by such a collection over all rows. Items are copies: a change needs `update`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from agentlightning.store.collection.base import Collection, DuplicatedPrimaryKeyError, TrackedCollection
from agentlightning.store.collection.memory import ListBasedCollection
from agentlightning.types import FilterOptions, PaginatedResult, SortOptions
from pydantic import BaseModel

from agl_plugin.store.rows import Rows, Unsaid

if TYPE_CHECKING:
    from agl_plugin.store.database import Database
    from agl_plugin.store.postgres import PostgresDatabase

ALL = 2**62
type Turns = Database | PostgresDatabase


class Named(TrackedCollection):
    """A table of a store."""

    def __init__(self, database: Turns, name: str) -> None:
        super().__init__()
        self._database, self._name = database, name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}>"

    async def size(self) -> int:
        async with self._database.turn(read_only=True):
            return (await self._database.read(f'SELECT count(*) FROM "{self._name}"'))[0][0]


class Table[T: BaseModel](Named, Collection[T]):
    """Items of `model`, in the order in which they were inserted. `indexes` are columns that queries look for,
    `ordered` those by which all items are listed."""

    def __init__(
        self,
        database: Turns,
        name: str,
        model: type[T],
        keys: Sequence[str],
        *,
        indexes: Sequence[str] = (),
        ordered: Sequence[str] = (),
    ) -> None:
        super().__init__(database, name)
        self._rows = Rows(model, keys)
        columns = list(self._rows.columns)
        self._columns = f"{self._listed(columns)}, data"
        marks = ", ".join("?" * (len(columns) + 1))
        self._insert = f'INSERT INTO "{name}" ({self._columns}) VALUES ({marks}) ON CONFLICT DO NOTHING RETURNING id'
        self._at_key = " AND ".join(f'"{key}" = ?' for key in keys)
        typed = ", ".join(f'"{column}" {database.TYPES[kind]}' for column, kind in self._rows.columns.items())
        make = [f'CREATE TABLE IF NOT EXISTS "{name}" (id {database.ROW_ID}, {typed}, data TEXT NOT NULL)']
        make.append(f'CREATE UNIQUE INDEX IF NOT EXISTS "{name}_key" ON "{name}" ({self._listed(keys)})')
        make += [f'CREATE INDEX IF NOT EXISTS "{name}_{column}" ON "{name}" ("{column}")' for column in indexes]
        for column in ordered:
            by = f"{self._rows.sorted_by(column)}, id"
            make.append(f'CREATE INDEX IF NOT EXISTS "{name}_by_{column}" ON "{name}" ({by})')
        for statement in make:
            database.make(statement)

    @staticmethod
    def _listed(names: Sequence[str]) -> str:
        return ", ".join(f'"{name}"' for name in names)

    async def query(
        self, filter: FilterOptions | None = None, sort: SortOptions | None = None, limit: int = -1, offset: int = 0
    ) -> PaginatedResult[T]:
        async with self._database.turn(read_only=True):
            try:
                chosen = self._rows.selection(filter, sort)
            except Unsaid:
                return await (await self._in_memory()).query(filter, sort, limit, offset)
            from_where = f'FROM "{self._name}" WHERE {chosen.where}'
            part = (ALL if limit == -1 else min(max(limit, 0), ALL), min(max(offset, 0), ALL))
            sql = f"SELECT data {from_where} ORDER BY {chosen.order} LIMIT ? OFFSET ?"
            rows = await self._database.read(sql, (*chosen.values, *part))
            total = len(rows)
            if limit != -1 or offset:
                ((total,),) = await self._database.read(f"SELECT count(*) {from_where}", chosen.values)
        items = [self._rows.item(text) for (text,) in rows]
        return PaginatedResult(items=items, limit=limit, offset=offset, total=total)

    async def get(self, filter: FilterOptions | None = None, sort: SortOptions | None = None) -> T | None:
        async with self._database.turn(read_only=True):
            try:
                chosen = self._rows.selection(filter, sort)
            except Unsaid:
                return await (await self._in_memory()).get(filter, sort)
            sql = f'SELECT data FROM "{self._name}" WHERE {chosen.where} ORDER BY {chosen.order} LIMIT 1'
            rows = await self._database.read(sql, chosen.values)
        return self._rows.item(rows[0][0]) if rows else None

    async def _in_memory(self) -> ListBasedCollection[T]:
        rows = await self._database.read(f'SELECT data FROM "{self._name}" ORDER BY id')
        items = [self._rows.item(text) for (text,) in rows]
        return ListBasedCollection(items, self._rows.model, self._rows.keys)

    async def insert(self, items: Sequence[T]) -> None:
        async with self._changing(items):
            seen: set[str] = set()
            for key in map(self._rows.key_text, items):
                if key in seen:
                    raise DuplicatedPrimaryKeyError(f"Insert payload contains duplicated primary key(s): {key}")
                seen.add(key)
            rows = [(*self._rows.values(item, list(self._rows.columns)), self._rows.text(item)) for item in items]
            if await self._database.copied(self._name, self._columns, rows):
                return
            for item, row in zip(items, rows, strict=True):
                if not await self._database.write(self._insert, row):
                    key = self._rows.key_text(item)
                    raise DuplicatedPrimaryKeyError(f"Item already exists with primary key(s): {key}")

    async def update(self, items: Sequence[T], update_fields: Sequence[str] | None = None) -> Sequence[T]:
        async with self._changing(items):
            return [await self._update_one(item, update_fields) for item in items]

    async def _update_one(self, item: T, fields: Sequence[str] | None) -> T:
        if fields is not None:
            stored = await self._stored(item)
            if stored is None:
                raise self._missing(item)
            item = stored.model_copy(update={field: getattr(item, field) for field in fields})
        names = [name for name in (self._rows.columns if fields is None else fields) if name in self._rows.columns]
        names = [name for name in names if name not in self._rows.keys]
        changes = ", ".join([*(f'"{name}" = ?' for name in names), "data = ?"])
        values = (*self._rows.values(item, names), self._rows.text(item), *self._rows.key_of(item))
        if not await self._database.write(
            f'UPDATE "{self._name}" SET {changes} WHERE {self._at_key} RETURNING id', values
        ):
            raise self._missing(item)
        return item

    async def upsert(self, items: Sequence[T], update_fields: Sequence[str] | None = None) -> Sequence[T]:
        async with self._changing(items):
            return [await self._upsert_one(item, update_fields) for item in items]

    async def _upsert_one(self, item: T, fields: Sequence[str] | None) -> T:
        with suppress(DuplicatedPrimaryKeyError):  # another store inserts it at this moment
            stored = await self._stored(item)
            if stored is None:
                await self.insert([item])
                return item
            return stored if fields is not None and not fields else await self._update_one(item, fields)
        return await self._upsert_one(item, fields)

    @asynccontextmanager
    async def _changing(self, items: Sequence[T]) -> AsyncIterator[None]:
        """A turn, or a part of the one under way, that changes all of these items or none."""
        for item in items:
            if not isinstance(item, self._rows.model):
                raise TypeError(f"Expected item of type {self._rows.model.__name__}, got {type(item).__name__}")
        async with self._database.turn():
            if len(items) < 2:  # one statement changes it, or none
                yield
                return
            async with self._database.part():
                yield

    async def _stored(self, item: T) -> T | None:
        sql = f'SELECT data FROM "{self._name}" WHERE {self._at_key} {self._database.LOCKED}'
        rows = await self._database.read(sql, self._rows.key_of(item))
        return self._rows.item(rows[0][0]) if rows else None

    def _missing(self, item: T) -> ValueError:
        return ValueError(f"Item does not exist with primary key(s): {self._rows.key_text(item)}")
