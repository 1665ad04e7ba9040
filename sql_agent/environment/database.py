"""Read-only execution of model-written SQL: text in, QueryResult out.

Queries run in child processes (`sql_worker.py` holds the rules of SQLite, `server_worker.py` those of the others); one
that overruns its time is killed and replaced, so no statement can hang, bloat or crash this process. `query` never
raises for bad SQL. It raises DatabaseFault when the database itself is missing, locked, corrupt, away or no longer the
file of the first query, and when no worker could be had. The workers are a process's pool of connections, one each.
Half of the workers run queries to their limit. While those are taken, the others run new queries for a short time each,
and what does not end in it waits for the first half: a lookup never waits for what is slow. Nothing binds to an event
loop; a Database inherited through a fork opens workers of its own. It does not look at what the data says.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, suppress
from functools import cached_property, partial
from pathlib import Path

from foundation.child import Child, Gone
from foundation.errors import AgentGRPOError, UserError
from sql_agent.config import DatabaseConfig
from sql_agent.environment import child_side, sql_worker
from sql_agent.environment.sql_text import Schema, UnusableSQL, clean_sql, explain_reply, is_query, refusal
from sql_agent.environment.sql_worker import Reply, TableDetails
from sql_agent.errors import DatabaseFault
from sql_agent.records import QueryResult

logger = logging.getLogger(__name__)
START_TIMEOUT_S = 20.0  # 0.05 s on an idle machine
MAX_CELL_CHARS = 10_000
MAX_RESULT_CHARS = 200_000
SERVERS = ("postgres", "mysql")
SERVER_GRACE_S = 2.0  # a server ends its statements itself
N_FULL = N_SHORT = 4  # workers that run queries to their limit, and workers for short runs
SHORT_RUN = 0.05  # of the limit, for a query that finds half of the workers taken
LONGEST_WAIT = 20  # limits; the last of 64 endless queries waits for 15
MOST_REFERENCES, MOST_CELLS = 256, 2000  # whose results are kept, and of how many cells
Signature = tuple[int, int, int, int]


class _Worker:
    """A child process that runs SQL, and the columns that it found. Raises DatabaseFault when it cannot serve."""

    def __init__(self, settings: sql_worker.Settings) -> None:
        program = child_side.arguments(sql_worker.__name__)
        environment = {}
        if settings["dialect"] != "sqlite":
            program = ["-I", "-m", "sql_agent.environment.server_worker"]
            environment = {name: os.environ[name] for name in ("DATABASE_PASSWORD", "HOME") if name in os.environ}
        try:
            self.child = Child([*program, json.dumps(settings)], start_s=START_TIMEOUT_S, environment=environment)
        except Gone as gone:
            why = f"timeout, {START_TIMEOUT_S:g} s" if gone.kind == "timeout" else str(gone)
            look = "; is the server up?" if settings["dialect"] in SERVERS else ""
            raise DatabaseFault(f"the SQL worker process did not start ({why}){look}") from gone
        hello: Reply = self.child.hello
        if hello["kind"] != "ready":
            self.child.kill()
            raise DatabaseFault(hello.get("message", "cannot be opened"))
        self.path = settings["path"]
        self.schema: Schema = hello.get("schema", {})
        self.details: dict[str, TableDetails] = hello.get("details", {})


class Workers:
    """Threads and worker processes, of one database or of many that share them.

    N_FULL + N_SHORT queries run at once, further ones wait. As many idle processes stay; beyond that the one that
    nobody asked for longest ends. A worker has one file open, and never another.
    """

    def __init__(self) -> None:
        self._open()

    def _open(self) -> None:
        self._pid, self._lock = os.getpid(), threading.Lock()
        self.idle: deque[_Worker] = deque()  # processes that wait for a query
        self._full = ThreadPoolExecutor(N_FULL, thread_name_prefix="sql")
        self._short = ThreadPoolExecutor(N_SHORT, thread_name_prefix="sql-short")
        self._in_full: set[Future[QueryResult]] = set()

    def _reopen_after_fork(self) -> None:
        """New threads and workers after a fork, where neither are ours."""
        if self._pid != os.getpid():
            self._open()

    def close(self) -> None:
        """End the workers, after the query each of them runs. Queries that still wait are cancelled."""
        self._reopen_after_fork()
        for pool in (self._short, self._full):
            pool.shutdown(wait=True, cancel_futures=True)
        while self.idle:
            self.idle.pop().child.kill()

    @property
    def has_room(self) -> bool:
        """Whether a query can run to its limit now."""
        return len(self._in_full) < N_FULL

    def submit(self, work: Callable[[], QueryResult], *, in_full: bool) -> Future[QueryResult]:
        """Run it in a thread. Raises RuntimeError where they are closed."""
        self._reopen_after_fork()
        future = (self._full if in_full else self._short).submit(work)
        if in_full:
            self._in_full.add(future)
            future.add_done_callback(self._in_full.discard)
        return future

    def take(self, settings: sql_worker.Settings) -> _Worker:
        """The worker of this file that was asked last, else a new one. Raises DatabaseFault."""
        while worker := self._take_idle(settings["path"]):
            if worker.child.alive:
                return worker
            worker.child.kill()
        return _Worker(settings)

    def _take_idle(self, path: str) -> _Worker | None:
        with self._lock:
            worker = next((idle for idle in reversed(self.idle) if idle.path == path), None)
            if worker:
                self.idle.remove(worker)
        return worker

    def give(self, worker: _Worker) -> None:
        """Take it back, idle."""
        with self._lock:
            self.idle.append(worker)
            oldest = self.idle.popleft() if len(self.idle) > N_FULL + N_SHORT else None
        if oldest:
            oldest.child.kill()


class _Unfinished(AgentGRPOError):
    """A query needs more than a short run."""


class Database(AbstractContextManager["Database"]):
    """A database that a model may read: a file, or the URL of a server. A context manager; usable from any thread and
    any event loop.

    Sizes and times are those of `config`. Given `workers` stay open when it is closed.
    """

    def __init__(self, config: DatabaseConfig, path: Path | str, workers: Workers | None = None) -> None:
        self.config, self.dialect = config, config.dialect
        self.path = path.absolute() if isinstance(path, Path) else path
        self.workers, self._owns_workers = workers or Workers(), workers is None
        self._signature: Signature | None = None
        self._references: dict[str, QueryResult] = {}
        self._settings: sql_worker.Settings = {
            "dialect": self.dialect,
            "path": str(self.path),
            "uri": f"{self.path.as_uri()}?mode=ro" if isinstance(self.path, Path) else self.path,
            "tables": list(config.tables),
            "timeout_s": config.timeout_s,
            "max_rows": config.max_rows,
            "max_cell_chars": max(MAX_CELL_CHARS, config.max_chars),
            "max_result_chars": max(MAX_RESULT_CHARS, config.max_chars),
            "max_memory_bytes": config.max_memory_mib << 20,
        }

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End its own workers, as `Workers.close` does."""
        if self._owns_workers:
            self.workers.close()

    async def query(self, sql: object) -> QueryResult:
        """Run one SELECT. Whatever is wrong with `sql` comes back as `error`, a text for the model.

        Cancelling it never disturbs another query. Raises DatabaseFault when the database itself failed, and when the
        query waited for more than LONGEST_WAIT limits.
        """
        try:
            return await asyncio.wrap_future(self._submit(sql, in_full=self.workers.has_room))
        except _Unfinished:
            return await asyncio.wrap_future(self._submit(sql, in_full=True))
        except UnusableSQL as exc:
            return QueryResult(error=str(exc))

    async def reference(self, sql: str) -> QueryResult:
        """`query` of what each rollout of a question is compared with: found once, and a short result of a file, which
        stays as it is, kept for the others."""
        if (result := self._references.pop(sql, None)) is None:
            result = await self.query(sql)
        if result.ok and isinstance(self.path, Path) and len(result.columns) * len(result.rows) <= MOST_CELLS:
            self._references[sql] = result  # as the newest
            if len(self._references) > MOST_REFERENCES:
                self._references.pop(next(iter(self._references)), None)
        return result

    def query_sync(self, sql: object) -> QueryResult:
        """`query` for code without an event loop."""
        try:
            return self._submit(sql, in_full=self.workers.has_room).result()
        except _Unfinished:
            return self._submit(sql, in_full=True).result()
        except UnusableSQL as exc:
            return QueryResult(error=str(exc))

    def _submit(self, sql: object, *, in_full: bool) -> Future[QueryResult]:
        statement = clean_sql(sql)
        if not is_query(statement):
            raise UnusableSQL(refusal(self._tables()))
        work = partial(self._run, statement, in_full=in_full, asked_s=time.monotonic())
        try:
            return self.workers.submit(work, in_full=in_full)
        except RuntimeError as exc:
            raise DatabaseFault(f"database {self.path}: {exc}") from exc

    def _run(self, sql: str, *, in_full: bool, asked_s: float) -> QueryResult:
        """In a thread of a pool: there are as many threads as workers, so each finds or starts one."""
        started_s = time.monotonic()
        try:
            self._check_wait(started_s - asked_s)
            worker = self._take()
            started_s = time.monotonic()
            reply = self._ask(worker, sql, limit_s=self.config.timeout_s * (1 if in_full else SHORT_RUN))
            elapsed_s = round(time.monotonic() - started_s, 4)
            self._check_unchanged()
            if reply["kind"] == "fault":
                raise DatabaseFault(reply.get("message", ""))
        except DatabaseFault as exc:
            raise DatabaseFault(f"database {self.path}: {exc}") from exc
        if reply["kind"] == "timeout" and not in_full:
            raise _Unfinished
        if reply["kind"] != "rows":
            timeout_s = self.config.timeout_s
            text = explain_reply(reply, sql=sql, schema=worker.schema, timeout_s=timeout_s, dialect=self.dialect)
            return QueryResult(error=text, elapsed_s=elapsed_s)
        return QueryResult(
            columns=reply.get("columns", []),
            rows=reply.get("rows", []),
            truncated=reply.get("truncated", False),
            elapsed_s=elapsed_s,
        )

    def _check_wait(self, waited_s: float) -> None:
        longest_s = LONGEST_WAIT * self.config.timeout_s
        if waited_s > longest_s:
            raise DatabaseFault(
                f"a query waited {waited_s:.1f} s for one of {N_FULL} workers, which run slow queries, and may "
                f"wait {longest_s:g} s; lower database.timeout_s or rollout.runner_concurrency"
            )

    def _take(self) -> _Worker:
        worker = self.workers.take(self._settings)
        if isinstance(self.path, Path):
            self._signature = self._signature or _signature(self.path)
        return worker

    def _tables(self) -> list[str]:
        """The readable tables, by name; those of a database that does not open are unknown."""
        with suppress(DatabaseFault):
            return self.config.tables or list(self.schema())
        return []

    def _ask(self, worker: _Worker, sql: str, *, limit_s: float) -> Reply:
        served = self.dialect in SERVERS
        grace_s = SERVER_GRACE_S if served else 0.05 * self.config.timeout_s + 0.01
        try:
            reply: Reply = worker.child.ask((sql, limit_s), timeout_s=limit_s + grace_s)
        except Gone as gone:
            if served:
                raise DatabaseFault(f"no answer within {limit_s + grace_s:.1f} s; is the server up?") from gone
            return {"kind": gone.kind}
        if reply["kind"] in ("memory", "fault"):  # a process that ran out of memory may not be whole
            worker.child.kill()
        else:
            self.workers.give(worker)
        return reply

    def _check_unchanged(self) -> None:
        if not isinstance(self.path, Path):
            return
        try:
            now = _signature(self.path)
        except OSError as exc:
            raise DatabaseFault(f"it is gone ({exc.strerror})") from exc
        if now != self._signature:
            raise DatabaseFault("the file was replaced or changed since the first query")

    def quoted(self, name: str) -> str:
        """A name as SQL reads it as a name, whatever it holds."""
        return sql_worker.quoted(name, self.dialect)

    def schema(self) -> Schema:
        """The readable tables with their columns. Raises DatabaseFault when the database cannot be opened."""
        return self._opened[0]

    def details(self) -> dict[str, TableDetails]:
        """Types and keys of the readable tables. Raises DatabaseFault when the database cannot be opened."""
        return self._opened[1]

    @cached_property
    def _opened(self) -> tuple[Schema, dict[str, TableDetails]]:
        """What a worker found."""
        try:
            worker = self._take()
        except DatabaseFault as exc:
            raise DatabaseFault(f"database {self.path}: {exc}") from exc
        self.workers.give(worker)
        return worker.schema, worker.details

    def check(self) -> None:
        """Make sure that the database can serve: file, format, tables, one query on each table, integrity.

        Raises UserError with the remedy.
        """
        try:
            tables = self.config.tables or list(self.schema())
            empty = [table for table in tables if not self._has_rows(table)]
        except DatabaseFault as exc:
            raise UserError(str(exc)) from exc
        if empty:
            text = f"database {self.path}: no rows in {', '.join(empty)}; fill it, or leave it out of database.tables"
            if len(empty) == len(tables):
                raise UserError(text)
            logger.warning(text)
        if self.dialect != "sqlite":
            return
        try:
            with closing(sqlite3.connect(self._settings["uri"], uri=True)) as connection:
                verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        except sqlite3.Error as exc:
            verdict = str(exc)
        if verdict != "ok":
            raise UserError(f"database {self.path}: corrupt ({verdict.splitlines()[-1]}); {sql_worker.MALFORMED}")

    def _has_rows(self, table: str) -> bool:
        result = self.query_sync(f"SELECT * FROM {self.quoted(table)} LIMIT 1")
        if result.error:
            raise UserError(
                f"database {self.path}: table {table} cannot be read alone ({result.error}). If it is a view or "
                "full-text index of another table, add that table to database.tables"
            )
        return bool(result.rows)


def _signature(path: Path) -> Signature:
    stat = path.stat()
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
