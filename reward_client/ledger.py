"""What the processes that judge together share: one folder on a local disk with cached verdicts, limits and budgets.

Guarantees: changes are transactions of SQLite (diskcache), so forked runners and other programs may use one folder at a
time; only JSON text is stored, and a pickle that somebody put there is refused; a key is computed once at a time over
all processes (`once`). A folder that cannot be used is a JudgeFolderFault, never a silent miss.
Not covered: folders on a network file system, several machines.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import json
import os
import secrets
import shutil
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import diskcache
from diskcache.core import MODE_PICKLE

from reward_client.errors import FAULTS, JudgeFault, JudgeFolderFault

MAX_BYTES = 2**30
BUSY_S = 30
LEASE_S = 15.0  # a process that was killed while it computed holds the others up for so long
POLL_S = 0.02
FAULT_KEPT_S = 60.0

Computed = tuple[str, dict[str, Any]]


class _JsonOnly(diskcache.Disk):
    """diskcache unpickles what a row calls a pickle; nothing of ours is one."""

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> Any:
        if mode == MODE_PICKLE:
            raise ValueError("a pickled value")
        return super().fetch(mode, filename, value, read)


@functools.lru_cache(maxsize=16)
def _open(folder: Path) -> diskcache.Cache:
    """Opened once per process, as long as it is in use (3 open files each); diskcache connects anew after a fork."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return diskcache.Cache(str(folder), timeout=BUSY_S, disk=_JsonOnly, size_limit=MAX_BYTES, disk_min_file_size=2**20)


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
    def _guarded(self) -> Iterator[Any]:
        try:
            yield _open(self.folder)
        except (sqlite3.Error, OSError, diskcache.Timeout, ValueError) as exc:
            raise JudgeFolderFault(
                f"judge folder {self.folder}: cannot be used ({type(exc).__name__}: {str(exc)[:100]}). It must be a "
                "writable folder on a local disk; delete it if it is damaged, or name another one"
            ) from exc

    def get(self, key: str) -> Any:
        """The value, or None."""
        with self._guarded() as cache:
            text = cache.get(key)
            return None if text is None else json.loads(text)

    def put(self, key: str, value: Any, *, expire_s: float | None = None) -> None:
        """Store `value`, for `expire_s` seconds or for good."""
        with self._guarded() as cache:
            cache.set(key, json.dumps(value), expire=expire_s)

    @contextlib.contextmanager
    def change(self, key: str, *, expire_s: float | None = None) -> Iterator[dict[str, Any]]:
        """The dict under `key` ({} at first), to be changed in place: no other process comes in between."""
        with self._guarded() as cache, cache.transact():
            text = cache.get(key)
            tree = json.loads(text) if text is not None else {}
            yield tree
            cache.set(key, json.dumps(tree), expire=expire_s)

    async def once(self, keys: Sequence[str], compute: Callable[[], Awaitable[Computed]]) -> dict[str, Any]:
        """The value under the first of `keys` that has one, else what `compute` gives, stored under the key it names.

        Whoever asks for the same first key meanwhile, in any process, waits and gets the same value or fault.
        """
        flight, me = f"flight:{keys[0]}", secrets.token_hex(8)
        while True:
            found = self._find(keys)
            if found is not None:
                return found
            with self._guarded() as cache:
                leads = cache.add(flight, json.dumps(me), expire=LEASE_S)
            if leads:
                return await self._lead(keys, flight, me, compute)
            await self._follow(flight)

    def _find(self, keys: Sequence[str]) -> dict[str, Any] | None:
        return next((value for key in keys if (value := self.get(f"value:{key}")) is not None), None)

    async def _lead(
        self, keys: Sequence[str], flight: str, me: str, compute: Callable[[], Awaitable[Computed]]
    ) -> dict[str, Any]:
        renewal = asyncio.create_task(self._renew(flight))
        try:
            found = self._find(keys)  # another may have finished between our look and our lease
            if found is not None:
                return found
            key, value = await compute()
            self.put(f"value:{key}", value)
            return value
        except JudgeFault as fault:
            with contextlib.suppress(JudgeFolderFault):
                self.put(f"fault:{me}", [fault.kind, str(fault)], expire_s=FAULT_KEPT_S)
            raise
        finally:
            renewal.cancel()
            with contextlib.suppress(JudgeFolderFault), self._guarded() as cache:
                if cache.get(flight) == json.dumps(me):
                    cache.delete(flight)

    async def _renew(self, flight: str) -> None:
        while True:
            await asyncio.sleep(LEASE_S / 3)
            with contextlib.suppress(JudgeFolderFault), self._guarded() as cache:
                cache.touch(flight, expire=LEASE_S)

    async def _follow(self, flight: str) -> None:
        """Wait until the flight has landed; raise its leader's fault, so that an outage is not waited for in turn."""
        leader = self.get(flight)
        while leader is not None and self.get(flight) == leader:
            await asyncio.sleep(POLL_S)
        fault = self.get(f"fault:{leader}")
        if fault is not None:
            raise FAULTS.get(fault[0], JudgeFault)(fault[1])
