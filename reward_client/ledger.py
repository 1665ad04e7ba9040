"""What the processes that judge together share: one table in a SQLite file, on a local disk.

Verdicts, what was learned about endpoints, turns under limits a minute and the budget are rows of it. Guarantees: each
change is a transaction, so forked runners and other programs may use one folder at a time; values are JSON text; within
an event loop a key is computed once at a time (`once`). A folder that cannot be used is a JudgeFolderFault, never a
silent miss. Not covered: folders on a network file system, several machines.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import json
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reward_client.errors import JudgeBudgetSpent, JudgeFault, JudgeFolderFault, JudgeUnparsable
from reward_client.schema import Budget, Usage

FILE = "judge.db"
MAX_BYTES, BUSY_S = 2**30, 30.0
SCHEMA = "CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value TEXT NOT NULL, at_s REAL NOT NULL) WITHOUT ROWID"
# Half of them; budgets and turns stay.
OLDER_VERDICTS = (
    "DELETE FROM kept WHERE key IN (SELECT key FROM kept WHERE key LIKE 'value:%' ORDER BY at_s "
    "LIMIT (SELECT count(*) / 2 FROM kept WHERE key LIKE 'value:%'))"
)

_asks: dict[tuple[asyncio.AbstractEventLoop, Path, str], asyncio.Future[Any]] = {}


@functools.lru_cache(maxsize=16)
def _open(folder: Path, _process: int) -> tuple[sqlite3.Connection, threading.RLock]:
    """Once per process: a connection does not survive a fork."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    db = sqlite3.connect(folder / FILE, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "trusted_schema = OFF"):
        db.execute(f"PRAGMA {pragma}")
    db.execute(SCHEMA)
    if (folder / FILE).stat().st_size > MAX_BYTES:
        db.execute(OLDER_VERDICTS)
        db.execute("VACUUM")
    return db, threading.RLock()


@dataclass(frozen=True)
class Ledger:
    """The shared folder. Values are JSON trees."""

    folder: Path

    @classmethod
    def temporary(cls) -> Ledger:
        """A folder of this process and its forks, removed at the end of this process."""
        folder = Path(tempfile.mkdtemp(prefix="judge-"))
        owner = os.getpid()
        atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
        return cls(folder)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[sqlite3.Connection]:
        try:
            db, mine = _open(self.folder, os.getpid())
            with mine:
                yield db
        except (sqlite3.Error, OSError, ValueError) as exc:
            raise JudgeFolderFault(
                f"judge folder {self.folder}: cannot be used ({type(exc).__name__}: {str(exc)[:100]}). It must be a "
                "writable folder on a local disk; delete it if it is damaged, or name another one"
            ) from exc

    def get(self, key: str) -> Any:
        """The value, or None."""
        with self._guarded() as db:
            row = db.execute("SELECT value FROM kept WHERE key = ?", [key]).fetchone()
            return row and json.loads(row[0])

    def put(self, key: str, value: Any) -> None:
        with self._guarded() as db:
            db.execute("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", [key, json.dumps(value), time.time()])

    @contextlib.contextmanager
    def change(self, key: str) -> Iterator[dict[str, Any]]:
        """The dict under `key` ({} at first), to be changed in place: no other process comes in between."""
        with self._guarded() as db, db:
            db.execute("BEGIN IMMEDIATE")
            yield (tree := self.get(key) or {})
            self.put(key, tree)

    async def once[T](
        self,
        keys: Sequence[str],
        read: Callable[[Any], T],
        compute: Callable[[], Awaitable[tuple[str, dict[str, Any]]]],
    ) -> T:
        """What `read` makes of the value under the first of `keys` that has one which it takes, else of what `compute`
        gives, stored under the key it names. `read` raises ValueError or JudgeUnparsable for what it does not take.

        Whoever asks for the same first key meanwhile, in the same event loop, waits and gets the same value or fault.
        """

        async def find_or_compute() -> T:
            for key in keys:
                if (value := self.get(f"value:{key}")) is not None:
                    with contextlib.suppress(ValueError, JudgeUnparsable):
                        return read(value)
            key, value = await compute()
            self.put(f"value:{key}", value)
            return read(value)

        name = (asyncio.get_running_loop(), self.folder, keys[0])
        if name not in _asks:
            _asks[name] = asyncio.ensure_future(find_or_compute())
            _asks[name].add_done_callback(lambda ask: (_asks.pop(name), ask.cancelled() or ask.exception()))
            return await asyncio.shield(_asks[name])
        try:
            return await asyncio.shield(_asks[name])
        except JudgeFault as fault:
            raise type(fault)(str(fault)) from None  # what it cost is told once


@dataclass(frozen=True)
class Spending:
    """What the run named `run` has spent on judging, over all its processes. No limit, no account.

    A call reserves the most that it can use before it is sent and is settled by what the server counts, so the budget
    is never exceeded; a server that counts nothing leaves the reservation standing. A failed call is charged no tokens.
    """

    ledger: Ledger
    run: str
    budget: Budget

    def reserve(self, most: Usage) -> None:
        """Put aside what a call may use at most. Raises JudgeBudgetSpent where that is more than what is left."""
        with self._account() as spent:
            for name, limit in self.budget:
                already = spent.get(name, 0)
                wanted = getattr(most, name)
                if limit and already + wanted > limit:
                    raise JudgeBudgetSpent(
                        f"reward.judge.budget_{name} = {limit:g}: {already:g} of it are spent, and the next call may "
                        f"take {wanted:g}. Raise reward.judge.budget_{name}, or start a new run"
                    )
                spent[name] = already + wanted

    def settle(self, most: Usage, used: Usage) -> None:
        """Replace what was put aside by what the call did use."""
        with self._account() as spent:
            for name, _ in self.budget:
                spent[name] = max(0, spent.get(name, 0) + getattr(used, name) - getattr(most, name))

    def spent(self) -> dict[str, float]:
        """Calls, tokens and cost so far; {} where nothing is limited."""
        return self.ledger.get(f"spent:{self.run}") or {}

    def _account(self) -> contextlib.AbstractContextManager[dict[str, Any]]:
        limited = any(limit for _, limit in self.budget)
        return self.ledger.change(f"spent:{self.run}") if limited else contextlib.nullcontext({})
