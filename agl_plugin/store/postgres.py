"""A PostgreSQL database with the interface of database.py: turns at the same time, for stores on several machines.

Guarantees: a turn is one transaction, all or nothing, committed before it ends. Turns that name the same (a rollout,
the key of a request) follow each other, in whichever store they are: an advisory lock per name, which ends with the
transaction, and so with a store that dies; others go on beside each other, each on a connection of its own. So what an
operation has read of its rollout stays true until it is done, and a rollout is handed out once, whoever asks where. A
connection that is lost in a turn fails it; a turn that has not begun waits until the server, which may be starting
again, lets the store in, up to `patience_s` since it did not. Usable from any thread and event loop.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any, ClassVar, LiteralString, cast

import aiologic
import psycopg
from psycopg.pq import TransactionStatus

from agl_plugin.store.database import Row
from agl_plugin.store.rows import INFINITE
from foundation.errors import RunError

logger = logging.getLogger(__name__)

AT_ONCE = 8  # turns, and connections, of one store
COPY_FROM = 6  # rows: COPY and its savepoint cost as much as so many INSERTs
LOCK = 0x61676C  # "agl", of the advisory lock of those who make tables
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
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

Connection = psycopg.AsyncConnection[Row]


@functools.cache
def dialect(sql: str) -> LiteralString:
    """A statement of this folder, with PostgreSQL's marks for values."""
    return cast(LiteralString, sql.replace("%", "%%").replace("?", "%s").replace(INFINITE, "'Infinity'::float8"))


def lock_numbers(names: Iterable[str]) -> list[int]:
    """Of the advisory locks of these names, in the order in which everybody takes them."""
    digests = {blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest() for name in names}
    return sorted(int.from_bytes(digest, signed=True) for digest in digests)


class PostgresDatabase:
    """The database at `address` (a URL or libpq's keywords). Raises RunError where it does not answer."""

    ROW_ID: ClassVar[str] = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    TYPES: ClassVar[dict[type, str]] = {str: 'TEXT COLLATE "C"', int: "BIGINT", float: "DOUBLE PRECISION"}
    LOCKED: ClassVar[str] = "FOR UPDATE"
    UNCLAIMED: ClassVar[str] = "FOR UPDATE SKIP LOCKED"
    N_ANSWERS: ClassVar[int] = 50_000  # others go on while one who was not answered asks again
    AGAIN: ClassVar[tuple[type[Exception], ...]] = (psycopg.errors.DeadlockDetected,)

    def __init__(self, address: str, *, patience_s: float = PATIENCE_S) -> None:
        self._address, self._patience_s = address, patience_s
        self._lost_at: float | None = None  # by time.monotonic, while the server is away
        self._mine: ContextVar[Connection | None] = ContextVar("connection", default=None)  # of the turn under way
        self._idle = aiologic.SimpleLifoQueue[Connection | None]([None] * AT_ONCE)
        try:
            self._maker = psycopg.connect(address, autocommit=True, connect_timeout=CONNECT_S, **OPTIONS)
        except psycopg.Error as exc:
            reason = str(exc).strip().splitlines()[0] if str(exc).strip() else type(exc).__name__
            raise RunError(
                f"the PostgreSQL server does not let the store in: {reason}. Is it up, and are address, database, user "
                "and password right? (postgresql://USER:PASSWORD@HOST:5432/DATABASE)"
            ) from exc
        self.make(INSTR)

    def make(self, statement: str) -> None:
        with self._maker.transaction():
            self._maker.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            self._maker.execute(dialect(statement))

    @asynccontextmanager
    async def turn(self, *names: str, read_only: bool = False) -> AsyncIterator[None]:
        """One transaction, which nobody else has who gave one of these names. A turn within a turn is part of it."""
        if self._mine.get():
            yield
            return
        locks = [f"SELECT pg_advisory_xact_lock({number})" for number in lock_numbers(names)]
        connection = await self._idle.async_get()
        try:
            connection = await self._begun(connection, SNAPSHOT if read_only else "; ".join(["BEGIN", *locks]))
            token = self._mine.set(connection)
            try:
                yield
                if connection.pgconn.transaction_status != TransactionStatus.INTRANS:
                    raise psycopg.OperationalError("the transaction was taken back")
                await connection.commit()
            except BaseException:
                with suppress(psycopg.Error):  # of one that is lost nothing is left
                    await connection.rollback()
                raise
            finally:
                self._mine.reset(token)
                if connection.pgconn.transaction_status != TransactionStatus.IDLE:
                    await connection.close()
        finally:
            self._idle.put(connection)

    async def _begun(self, connection: Connection | None, begin: str) -> Connection:
        """A connection in a new transaction. Nothing was done in it, so it can be begun again."""
        while True:
            try:
                if not connection or connection.closed:
                    options = {**OPTIONS, "connect_timeout": CONNECT_S}
                    connection = await psycopg.AsyncConnection.connect(self._address, autocommit=True, **options)
                await connection.execute(cast(LiteralString, begin), prepare=False)
            except BaseException as exc:
                is_lost = not connection or connection.closed
                if connection:
                    await connection.close()  # and the locks that it has
                if not isinstance(exc, psycopg.OperationalError) or not is_lost or not self._patient(exc):
                    raise
            else:
                self._lost_at = None
                return connection
            await asyncio.sleep(PAUSE_S)

    def _patient(self, exc: psycopg.OperationalError) -> bool:
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            logger.warning("PostgreSQL is away (%s); waiting %.0f s", exc, self._patience_s)
        return time.monotonic() < self._lost_at + self._patience_s

    @property
    def _connection(self) -> Connection:
        connection = self._mine.get()
        assert connection, "outside of a turn"
        return connection

    async def hold(self, names: Iterable[str]) -> None:
        """Within a turn: these names too, until it ends."""
        locks = "SELECT pg_advisory_xact_lock(number) FROM unnest(%s::bigint[]) AS number"
        await self._connection.execute(locks, (lock_numbers(names),))

    def part(self) -> AbstractAsyncContextManager[Any]:
        return self._connection.transaction()

    async def read(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        cursor = await self._connection.execute(dialect(sql), values)
        return await cursor.fetchall() if cursor.rownumber is not None else []

    write = read

    async def copied(self, table: str, columns: str, rows: Sequence[Sequence[Any]]) -> bool:
        """Within a turn: all these rows by one COPY. False where they are few, or one has a key that is taken."""
        if len(rows) < COPY_FROM:
            return False
        sql = cast(LiteralString, f'COPY "{table}" ({columns}) FROM STDIN')
        try:
            async with self.part(), self._connection.cursor() as cursor, cursor.copy(sql) as copy:
                for row in rows:
                    await copy.write_row(row)
        except psycopg.errors.UniqueViolation:
            return False
        return True

    def close(self) -> None:
        """Let go of the server; of one that is away without waiting for the turn that does."""
        self._patience_s = 0.0
        self._maker.close()
        for connection in [self._idle.green_get(blocking=False) for _ in range(len(self._idle))]:
            if connection:
                connection.pgconn.finish()
            self._idle.put(None)
