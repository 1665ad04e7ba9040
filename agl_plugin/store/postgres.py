"""A PostgreSQL database with the interface of database.py: turns on it, for stores on several machines.

Guarantees: a turn is one transaction, all or nothing, committed before it ends; of all stores that serve this database
one at a time has a turn (an advisory lock that ends with the transaction, and so with a store that dies), so a rollout
is handed out once, whoever asks where. A connection that is lost in a turn fails it; a turn that has not begun waits
until the server, which may be starting again, lets the store in, up to `patience_s` since it did not.
Not covered: turns at the same time.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any, ClassVar, LiteralString, cast

import aiologic
import psycopg

from agl_plugin.store.rows import INFINITE
from agl_plugin.store.turns import CURRENT_TURN
from foundation.errors import RunError

logger = logging.getLogger(__name__)

LOCK = 0x61676C  # "agl", of the advisory lock
CONNECT_S = 10
PATIENCE_S = 60.0  # a server that is started again, with what it has to recover
PAUSE_S = 0.5
OPTIONS: dict[str, Any] = {
    "application_name": "agentgrpo-store",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "options": "-c lock_timeout=30s -c statement_timeout=60s",
}
# By the name that it has in SQLite.
INSTR = "CREATE OR REPLACE FUNCTION instr(text, text) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT strpos($1, $2)'"


@functools.cache
def dialect(sql: str) -> LiteralString:
    """A statement of this folder, with PostgreSQL's marks for values."""
    return cast(LiteralString, sql.replace("%", "%%").replace("?", "%s").replace(INFINITE, "'Infinity'::float8"))


class PostgresDatabase:
    """The database at `address` (a URL or libpq's keywords). Raises RunError where it does not answer."""

    ROW_ID: ClassVar[str] = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    TYPES: ClassVar[dict[type, str]] = {str: 'TEXT COLLATE "C"', int: "BIGINT", float: "DOUBLE PRECISION"}
    DUPLICATE: ClassVar[type[Exception]] = psycopg.errors.UniqueViolation

    def __init__(self, address: str, *, patience_s: float = PATIENCE_S) -> None:
        self._address, self._pen, self._patience_s = address, aiologic.Lock(), patience_s
        self._lost_at: float | None = None  # by time.monotonic, while the server is away
        try:
            self._connection = self._connected()
        except psycopg.Error as exc:
            reason = str(exc).strip().splitlines()[0] if str(exc).strip() else type(exc).__name__
            raise RunError(
                f"the PostgreSQL server does not let the store in: {reason}. Is it up, and are address, database, user "
                "and password right? (postgresql://USER:PASSWORD@HOST:5432/DATABASE)"
            ) from exc
        self.make(INSTR)

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self._address, autocommit=True, connect_timeout=CONNECT_S, **OPTIONS)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._connection.transaction():
            self._connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            yield

    def make(self, statement: str) -> None:
        """Make a table or an index, before the first turn."""
        with self._pen, self._alone():
            self._connection.execute(dialect(statement))

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """The database for this block alone, of all stores. A turn within a turn is part of it."""
        if CURRENT_TURN.get() is self:
            yield
            return
        async with self._pen:
            begun = await self._begun()
            token = CURRENT_TURN.set(self)
            try:
                with begun:
                    yield
            finally:
                CURRENT_TURN.reset(token)

    async def _begun(self) -> ExitStack:
        """A transaction that nobody else has beside it. Nothing was done in it, so it can be begun again."""
        while True:
            begun = ExitStack()
            try:
                if self._connection.closed:
                    self._connection = await asyncio.to_thread(self._connected)
                begun.enter_context(self._alone())
            except psycopg.OperationalError as exc:
                if not self._connection.closed or not self._patient(exc):
                    raise
                await asyncio.sleep(PAUSE_S)
            else:
                self._lost_at = None
                return begun

    def _patient(self, exc: psycopg.OperationalError) -> bool:
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            logger.warning("PostgreSQL is away (%s); waiting %.0f s", exc, self._patience_s)
        return time.monotonic() < self._lost_at + self._patience_s

    @contextmanager
    def part(self) -> Iterator[None]:
        """Within a turn: writes that are taken back together when the block raises."""
        with self._connection.transaction():
            yield

    def read(self, sql: str, values: Sequence[Any] = ()) -> psycopg.Cursor[tuple[Any, ...]]:
        """Within a turn: a query."""
        return self._connection.execute(dialect(sql), values)

    write = read

    def close(self) -> None:
        """Let go of the server; of one that is away without waiting for the turn that does."""
        self._patience_s = 0.0
        if not self._connection.closed:
            with self._pen:
                self._connection.close()
