"""Writes audit.db while a run goes on: in a thread of its own, one transaction for a step's rollouts and one for its
update.

Guarantees: whoever notes something does not wait for the disk; a transaction is there as a whole or not at all; at the
end the file is complete, and its SHA-256 stands beside it. An audit that cannot be written (disk full) ends with one
warning and does not end the run: `verify` names the steps that lack. Only the process that trains has one; runners get
neither its path nor a way to it.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from agl_plugin.audit import schema
from agl_plugin.audit.schema import Rows, text
from foundation import run_folder
from foundation.files import write_text

logger = logging.getLogger(__name__)


class AuditLog(AbstractContextManager["AuditLog"]):
    """The audit of one run. Not to be shared between processes."""

    def __init__(self, run_dir: Path, *, settings: dict[str, Any]) -> None:
        self._path = run_dir / run_folder.AUDIT
        self._seal = run_dir / run_folder.AUDIT_SEAL
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit")
        self._connection: sqlite3.Connection | None = None
        self._broken = False
        self._seconds = self._told_s = 0.0
        self.run_id = run_dir.name
        run = {"id": self.run_id, "started_s": time.time(), "settings": text(settings, limit=2**24)}
        self._submit(self._open)
        self.add(lambda: {"run": [run]}, step=0)

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def add(self, make_rows: Callable[[], Rows], *, step: int) -> None:
        """Add in one transaction, soon, what `make_rows` gives; it is called in the thread that writes."""
        self._submit(lambda: self._add(make_rows(), step))

    def wait(self) -> None:
        """Until all that was added is written."""
        self._thread.submit(lambda: None).result()

    def metrics(self) -> dict[str, float]:
        """Seconds that writing took since the last look."""
        spent, self._told_s = self._seconds - self._told_s, self._seconds
        metrics = {"audit/seconds": spent}
        if self._broken:
            metrics["audit/broken"] = 1.0
        return metrics

    def close(self) -> None:
        """Write what is left, and seal the file."""
        self._submit(self._close)
        self._thread.shutdown(wait=True)
        if self._connection:
            self._connection.close()

    def _submit(self, work: Callable[[], None]) -> None:
        self._thread.submit(self._do, work)

    def _do(self, work: Callable[[], None]) -> None:
        if self._broken:
            return
        started = time.perf_counter()
        try:
            work()
        except Exception:  # whatever it is, a run does not end because of its audit
            self._broken = True
            logger.warning("%s cannot be written any more; the run goes on", self._path, exc_info=True)
        self._seconds += time.perf_counter() - started

    def _open(self) -> None:
        self._connection = sqlite3.connect(self._path, check_same_thread=False)
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL"):
            self._connection.execute(f"PRAGMA {pragma}")
        with self._connection:
            schema.make(self._connection)

    def _add(self, rows: Rows, step: int) -> None:
        assert self._connection
        with self._connection:
            schema.add(self._connection, rows, step=step)

    def _close(self) -> None:
        assert self._connection
        self._connection.execute("PRAGMA journal_mode=DELETE")  # one file, which can be opened where nothing is written
        self._connection.close()
        write_text(self._seal, seal_of(self._path) + "\n")


def seal_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
