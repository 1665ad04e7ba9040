"""One SQLite file, one connection, and turns on it: what a turn wrote is in the file before the turn ends.

Guarantees: a turn is all or nothing, and no other turn sees or commits a half of it; it ends when what it wrote, and
what it may have read of turns before it, is committed, so that a process that is killed at any moment loses nothing
that somebody was told. One thread commits for all turns that ended meanwhile (WAL, synchronous=NORMAL: enough for a
process that dies; a machine that loses power may lose the last commits, never the file's integrity). A commit that
fails (disk full) is told to each turn that waits for it. Usable from any thread and event loop; one process per file.
"""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, ClassVar

import aiologic

from foundation.errors import RunError

Row = tuple[Any, ...]
CURRENT_TURN: ContextVar[object] = ContextVar("turn", default=None)  # the database whose turn this is
LINGER_S = 0.001  # turns that end within it share a commit
VERSION = 1  # of the tables: PRAGMA user_version
PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL", "cache_size=-32768", "temp_store=MEMORY")
DAMAGED = (
    "Restore the file from a copy, or move it away with its -wal and -shm and start with an empty store; a run then "
    "goes on with --resume"
)
TAKEN_BACK = "the transaction was taken back: is the disk full?"


def locked(path: Path) -> IO[str]:
    """The file, which one process holds, by whatever name and whichever way it ends. Raises RunError.

    To be closed after the connection: SQLite's own locks go with any descriptor of the file that is closed.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as exc:
        raise RunError(f"{path}: no store can be kept there ({exc.strerror}). Give another --path") from exc
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        file.close()
        raise RunError(f"{path}: another store has this file open. Stop it, or give another --path") from exc
    return file


def connected(path: Path) -> sqlite3.Connection:
    """The database, made where there is none. Raises RunError for a file that is none of ours, or damaged."""
    connection = None
    remedy = "Give another --path"
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=512)
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version != VERSION and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise sqlite3.OperationalError(f"its tables are of version {version}, and this store reads {VERSION}")
        if damage := [text for (text,) in connection.execute("PRAGMA quick_check(1)") if text != "ok"]:
            raise sqlite3.DatabaseError(f"the file is damaged: {damage[0]}")
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        if version != VERSION:
            connection.execute(f"PRAGMA user_version={VERSION}")
    except sqlite3.Error as exc:
        if connection:
            connection.close()
        if not isinstance(exc, sqlite3.OperationalError):
            remedy = DAMAGED
        raise RunError(f"{path}: no store can be kept there ({exc}). {remedy}") from exc
    return connection


class Database:
    """The file at `path`, opened at once and held until `close`.

    Statements have `?` for values; nothing but a turn reads or writes. The words in which databases differ stand first.
    """

    ROW_ID: ClassVar[str] = "INTEGER PRIMARY KEY"  # numbers rows in the order of their insertion
    TYPES: ClassVar[dict[type, str]] = {str: "", int: "", float: ""}  # of columns; SQLite keeps what it is given
    LOCKED: ClassVar[str] = ""  # ends a SELECT of rows that the turn will change; here it has the whole file
    UNCLAIMED: ClassVar[str] = ""  # the same of rows that it takes, without those that another one is taking
    N_ANSWERS: ClassVar[int] = 1000  # kept of requests that may be sent again
    AGAIN: ClassVar[tuple[type[Exception], ...]] = ()  # raised by a turn that was taken back, and can be had again

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = locked(path)
        try:
            self._connection = connected(path)
        except RunError:
            self._lock.close()
            raise
        self._pen = aiologic.Lock()
        self._batch: Future[None] | None = None  # of what is written and not committed
        self._in_savepoint = self._closed = False
        self._written = threading.Event()
        self._committer = threading.Thread(target=self._commit_batches, name="store-commit", daemon=True)
        self._committer.start()

    def make(self, statement: str) -> None:
        """Make a table or an index, before the first turn."""
        try:
            with self._pen:
                self._connection.execute(statement)
        except sqlite3.Error as exc:
            self.close()
            raise RunError(f"{self.path}: its tables are not those of a store ({exc}). {DAMAGED}") from exc

    @asynccontextmanager
    async def turn(self, *_names: str, read_only: bool = False) -> AsyncIterator[None]:
        """The database for this block alone, and its writes committed after it. A turn within a turn is part of it."""
        if CURRENT_TURN.get() is self:
            yield
            return
        async with self._pen:
            token = CURRENT_TURN.set(self)
            try:
                with self._all_or_nothing("turn"):
                    yield
            finally:
                self._in_savepoint = False
                CURRENT_TURN.reset(token)
                if not self._connection.in_transaction:
                    self._commit()  # SQLite took the batch back: its disk is full
                batch = self._batch
                if batch:
                    self._written.set()
        if batch:
            await asyncio.wrap_future(batch)

    @contextmanager
    def _all_or_nothing(self, savepoint: str) -> Iterator[None]:
        """Take back what the block wrote when it raises."""
        try:
            yield
        except BaseException:
            if self._in_savepoint and self._connection.in_transaction:
                self._connection.execute(f"ROLLBACK TO {savepoint}")
            raise
        finally:
            if self._in_savepoint and self._connection.in_transaction:
                self._connection.execute(f"RELEASE {savepoint}")

    async def hold(self, _names: Iterable[str]) -> None:
        """A turn has the whole file."""

    @asynccontextmanager
    async def part(self) -> AsyncIterator[None]:
        """Within a turn: writes that are taken back together when the block raises."""
        await self.write("SAVEPOINT part")
        with self._all_or_nothing("part"):
            yield

    async def copied(self, _table: str, _columns: str, _rows: Sequence[Sequence[Any]]) -> bool:
        """Rows are inserted one by one, which costs no round trips."""
        return False

    async def read(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Within a turn: the rows of a query."""
        return self._connection.execute(sql, values).fetchall()

    async def write(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Within a turn: run a statement that changes something; the rows of its RETURNING."""
        if self._batch is None:
            self._connection.execute("BEGIN IMMEDIATE")
            self._batch = Future()
            self._batch.set_running_or_notify_cancel()  # so a caller that stops waiting cannot cancel it for the others
        elif not self._connection.in_transaction:
            raise sqlite3.OperationalError(TAKEN_BACK)
        if not self._in_savepoint:
            self._connection.execute("SAVEPOINT turn")
            self._in_savepoint = True
        return self._connection.execute(sql, values).fetchall()

    def _commit_batches(self) -> None:
        while self._written.wait() and not self._closed:
            self._written.clear()
            time.sleep(LINGER_S)
            with self._pen:
                self._commit()

    def _commit(self) -> None:
        batch, self._batch = self._batch, None
        if batch is None:
            return
        try:
            if not self._connection.in_transaction:
                raise sqlite3.OperationalError(TAKEN_BACK)
            self._connection.execute("COMMIT")
        except sqlite3.Error as exc:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            batch.set_exception(exc)
        else:
            batch.set_result(None)

    def close(self) -> None:
        """Commit, and let go of the file."""
        with self._pen:
            if not self._closed:
                self._commit()
                self._closed = True
                self._written.set()
                self._connection.close()
                self._lock.close()
        self._committer.join()
