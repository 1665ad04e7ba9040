"""Read-only execution of model-written SQL: text in, QueryResult out.

Queries run in child processes (`sql_worker.py` holds the rules); one that overruns its time is killed and replaced, so
no statement can hang, bloat or crash this process. `query` never raises for bad SQL. It raises DatabaseFault when the
database itself is missing, locked, corrupt or no longer the file of the first query. Nothing binds to an event loop; a
Database inherited through a fork opens workers of its own. It does not look at what the data says.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from foundation.child import Child, Gone
from foundation.errors import UserError
from sql_agent.config import DatabaseConfig
from sql_agent.environment import sql_worker
from sql_agent.environment.sql_text import Schema, UnusableSQL, clean_sql, explain_reply, is_query, refusal
from sql_agent.environment.sql_worker import Reply
from sql_agent.errors import DatabaseFault
from sql_agent.records import QueryResult

START_TIMEOUT_S = 20.0  # 0.05 s on an idle machine
MAX_CELL_CHARS = 10_000
MAX_RESULT_CHARS = 200_000
Signature = tuple[int, int, int, int]


class _Worker:
    """A child process that runs SQL, and the columns that it found. Raises DatabaseFault when it cannot serve."""

    def __init__(self, settings: sql_worker.Settings) -> None:
        try:
            self.child = Child(["-I", "-S", sql_worker.__file__, json.dumps(settings)], start_s=START_TIMEOUT_S)
        except Gone as gone:
            raise DatabaseFault(f"the SQL worker process did not start ({gone.kind})") from gone
        hello: Reply = self.child.hello
        if hello["kind"] != "ready":
            self.child.kill()
            raise DatabaseFault(hello.get("message", "cannot be opened"))
        self.schema: Schema = hello.get("schema", {})


class Database:
    """A SQLite file that a model may read. A context manager; usable from any thread and any event loop.

    `n_workers` queries run at once, further ones wait. Sizes and times are those of `config`.
    """

    def __init__(self, config: DatabaseConfig, path: Path, *, n_workers: int = 4) -> None:
        self.config, self.path = config, path
        self._n_workers = n_workers
        self._signature: Signature | None = None
        self._settings: sql_worker.Settings = {
            "path": str(path.absolute()),
            "uri": f"{path.absolute().as_uri()}?mode=ro",
            "tables": list(config.tables),
            "timeout_s": config.timeout_s,
            "max_rows": config.max_rows,
            "max_cell_chars": max(MAX_CELL_CHARS, config.max_chars),
            "max_result_chars": max(MAX_RESULT_CHARS, config.max_chars),
            "max_memory_bytes": config.max_memory_mib << 20,
        }
        self._open_pool()

    def _open_pool(self) -> None:
        self._pid = os.getpid()
        self._idle: deque[_Worker] = deque()
        self._threads = ThreadPoolExecutor(self._n_workers, thread_name_prefix="sql")

    def _pool(self) -> ThreadPoolExecutor:
        """The threads that talk to workers; new ones after a fork, where neither threads nor workers are ours."""
        if self._pid != os.getpid():
            for worker in self._idle:
                worker.child.kill()
            self._open_pool()
        return self._threads

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, after the query each of them runs. Queries that still wait are cancelled."""
        self._pool().shutdown(wait=True, cancel_futures=True)
        while self._idle:
            self._idle.pop().child.kill()

    async def query(self, sql: object) -> QueryResult:
        """Run one SELECT. Whatever is wrong with `sql` comes back as `error`, a text for the model.

        Cancelling it never disturbs another query. Raises DatabaseFault when the database itself failed.
        """
        statement = self._prepare(sql)
        if isinstance(statement, QueryResult):
            return statement
        return await asyncio.wrap_future(self._pool().submit(self._run, statement))

    def query_sync(self, sql: object) -> QueryResult:
        """`query` for code without an event loop."""
        statement = self._prepare(sql)
        return statement if isinstance(statement, QueryResult) else self._pool().submit(self._run, statement).result()

    def _prepare(self, sql: object) -> str | QueryResult:
        try:
            statement = clean_sql(sql)
        except UnusableSQL as exc:
            return QueryResult(error=str(exc))
        return statement if is_query(statement) else QueryResult(error=refusal(self.config.tables))

    def _run(self, sql: str) -> QueryResult:
        """In a thread of the pool: there are as many threads as workers, so each finds or starts one."""
        try:
            worker = self._take()
            started_s = time.monotonic()
            reply = self._ask(worker, sql)
            elapsed_s = round(time.monotonic() - started_s, 4)
            self._check_unchanged()
            if reply["kind"] == "fault":
                raise DatabaseFault(reply.get("message", ""))
        except DatabaseFault as exc:
            raise DatabaseFault(f"database {self.path}: {exc}") from exc
        if reply["kind"] != "rows":
            text = explain_reply(reply, sql=sql, schema=worker.schema, timeout_s=self.config.timeout_s)
            return QueryResult(error=text, elapsed_s=elapsed_s)
        return QueryResult(
            columns=reply.get("columns", []),
            rows=reply.get("rows", []),
            truncated=reply.get("truncated", False),
            elapsed_s=elapsed_s,
        )

    def _take(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.child.alive:
                return worker
            worker.child.kill()
        worker = _Worker(self._settings)
        self._signature = self._signature or _signature(self.path)
        return worker

    def _ask(self, worker: _Worker, sql: str) -> Reply:
        try:
            reply: Reply = worker.child.ask(sql, timeout_s=self.config.timeout_s * 1.05 + 0.01)
        except Gone as gone:
            return {"kind": gone.kind}
        if reply["kind"] in ("memory", "fault"):  # a process that ran out of memory may not be whole
            worker.child.kill()
        else:
            self._idle.append(worker)
        return reply

    def _check_unchanged(self) -> None:
        try:
            now = _signature(self.path)
        except OSError as exc:
            raise DatabaseFault(f"it is gone ({exc.strerror})") from exc
        if now != self._signature:
            raise DatabaseFault("the file was replaced or changed since the first query")

    def schema(self) -> Schema:
        """The readable tables with their columns. Raises DatabaseFault when the database cannot be opened."""
        worker = self._take()
        self._idle.append(worker)
        return worker.schema

    def check(self) -> None:
        """Make sure that the database can serve: file, format, tables, one query on each table, integrity.

        Raises UserError with the remedy.
        """
        try:
            for table in self.config.tables:
                self._try_table(table)
        except DatabaseFault as exc:
            raise UserError(str(exc)) from exc
        try:
            with closing(sqlite3.connect(self._settings["uri"], uri=True)) as connection:
                verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        except sqlite3.Error as exc:
            verdict = str(exc)
        if verdict != "ok":
            raise UserError(f"database {self.path}: corrupt ({verdict.splitlines()[-1]}); {sql_worker.REMEDY}")

    def _try_table(self, table: str) -> None:
        name = table.replace('"', '""')
        result = self.query_sync(f'SELECT * FROM "{name}" LIMIT 1')
        if result.error:
            raise UserError(
                f"database {self.path}: table {table} cannot be read alone ({result.error}). If it is a view or "
                "full-text index of another table, add that table to database.tables"
            )
        if not result.rows:
            raise UserError(
                f"database {self.path}: table {table} has no rows; fill it, or name others in database.tables"
            )


def _signature(path: Path) -> Signature:
    stat = path.stat()
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
