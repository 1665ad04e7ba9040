"""What the processes that judge together share: one folder on a local disk with cached verdicts, limits and budgets.

Guarantees: changes are transactions of SQLite (diskcache), so forked runners and other programs may use one folder at a
time; only JSON text is stored, and a pickle that somebody put there is refused; a key is computed once at a time over
all processes (`once`). Locks are the kernel's, on bytes of one file: those of a killed process are free at once.
A folder that cannot be used is a JudgeFolderFault, never a silent miss.
Not covered: folders on a network file system, several machines.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import diskcache
from diskcache.core import MODE_PICKLE

from reward_client.errors import FAULTS, JudgeFault, JudgeFolderFault

MAX_BYTES = 2**30
BUSY_S = 30
POLL_S = 0.02
FAULT_KEPT_S = 60.0

Computed = tuple[str, dict[str, Any]]
# The locks of this process: to the kernel its threads are one. The process's number is in the key because of forks.
_held: dict[tuple[int, Path, int], object] = {}


class _JsonOnly(diskcache.Disk):
    """diskcache unpickles what a row calls a pickle; nothing of ours is one."""

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> Any:
        if mode == MODE_PICKLE:
            raise ValueError("a pickled value")
        return super().fetch(mode, filename, value, read)


@functools.lru_cache(maxsize=16)
def _open(folder: Path) -> tuple[diskcache.Cache, int]:
    """The cache and the file of locks, opened once per process; diskcache connects anew after a fork."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    cache = diskcache.Cache(str(folder), timeout=BUSY_S, disk=_JsonOnly, size_limit=MAX_BYTES, disk_min_file_size=2**20)
    file = os.open(folder / "locks", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    weakref.finalize(cache, os.close, file)
    return cache, file


@functools.lru_cache(maxsize=4096)
def _byte(name: str) -> int:
    """The place of a lock in the file; the file stays empty."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7])


@dataclass(frozen=True)
class Ledger:
    """The shared folder. Values are JSON trees."""

    folder: Path

    @classmethod
    def temporary(cls) -> Ledger:
        """A folder of this process and its forks, removed at the end of this process."""
        folder, owner = Path(tempfile.mkdtemp(prefix="judge-")), os.getpid()
        atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
        return cls(folder)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[tuple[Any, int]]:
        try:
            yield _open(self.folder)
        except (sqlite3.Error, OSError, diskcache.Timeout, ValueError) as exc:
            raise JudgeFolderFault(
                f"judge folder {self.folder}: cannot be used ({type(exc).__name__}: {str(exc)[:100]}). It must be a "
                "writable folder on a local disk; delete it if it is damaged, or name another one"
            ) from exc

    def get(self, key: str) -> Any:
        """The value, or None."""
        with self._guarded() as (cache, _):
            text = cache.get(key)
            return None if text is None else json.loads(text)

    def put(self, key: str, value: Any, *, expire_s: float | None = None) -> None:
        """Store `value`, for `expire_s` seconds or for good."""
        with self._guarded() as (cache, _):
            cache.set(key, json.dumps(value), expire=expire_s)

    @contextlib.contextmanager
    def change(self, key: str, *, expire_s: float) -> Iterator[dict[str, Any]]:
        """The dict under `key` ({} at first), to be changed in place: no other process comes in between.

        Unchanged, it is not written (a transaction without a write is cheap), and expires as it would have.
        """
        with self._guarded() as (cache, _), cache.transact():
            text = cache.get(key)
            tree = json.loads(text or "{}")
            yield tree
            if (changed := json.dumps(tree)) != text:
                cache.set(key, changed, expire=expire_s)

    def lock(self, name: str) -> bool:
        """Take the lock `name`, if nobody has it, in this process or another."""
        key, mine, taken = (os.getpid(), self.folder, _byte(name)), object(), False
        if _held.setdefault(key, mine) is not mine:
            return False
        try:
            with self._guarded() as (_, file), contextlib.suppress(BlockingIOError):
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, key[2])
                taken = True
        finally:
            if not taken:
                del _held[key]
        return taken

    def unlock(self, name: str) -> None:
        """Give a lock back."""
        with self._guarded() as (_, file):
            fcntl.lockf(file, fcntl.LOCK_UN, 1, _byte(name))
        del _held[os.getpid(), self.folder, _byte(name)]

    async def once(self, keys: Sequence[str], compute: Callable[[], Awaitable[Computed]]) -> dict[str, Any]:
        """The value under the first of `keys` that has one, else what `compute` gives, stored under the key it names.

        Whoever asks for the same first key meanwhile, in any process, waits and gets the same value or fault.
        """
        name, since_s = f"asks:{keys[0]}", time.time()
        while not self.lock(name):
            await asyncio.sleep(POLL_S)
        try:
            found = next((value for key in keys if (value := self.get(f"value:{key}")) is not None), None)
            return found if found is not None else await self._compute(keys[0], since_s, compute)
        finally:
            self.unlock(name)

    async def _compute(self, key: str, since_s: float, compute: Callable[[], Awaitable[Computed]]) -> dict[str, Any]:
        """The new value; or the fault of one who tried since we began to wait, so that an outage is not waited for
        in turn."""
        kind, text, at_s = self.get(f"fault:{key}") or ("", "", 0.0)
        if at_s > since_s:
            raise FAULTS.get(kind, JudgeFault)(text)
        try:
            computed, value = await compute()
        except JudgeFault as fault:
            with contextlib.suppress(JudgeFolderFault):
                self.put(f"fault:{key}", [fault.kind, str(fault), time.time()], expire_s=FAULT_KEPT_S)
            raise
        self.put(f"value:{computed}", value)
        return value
