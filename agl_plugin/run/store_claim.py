"""One training run per store: two would take each other's rollouts, since runners serve whoever enqueues.

The trainer reports to the store as a worker of its own, with a heartbeat; a second trainer sees it and is refused. What
an earlier run left in the queue (it was killed) is cancelled, because nobody waits for it any more.
Guarantees: of two that start at the same time at most one goes on; a run that ended, or whose process is gone on this
machine, holds nothing; one that was killed on another machine holds the store for LIVE_S. Clocks must agree to seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from typing import Any

import psutil

from agl_plugin.store.client import store_at
from foundation.errors import RunError

logger = logging.getLogger(__name__)

BEAT_EVERY_S = 5.0
LIVE_S = 30.0
PREFIX = "trainer-"
OPEN = ["queuing", "preparing", "running", "requeuing"]


class StoreClaim:
    """Holds the store at `address` for the run of this name, as long as the block lasts.

    `keep_spans` is what it asks of a store that deletes spans.
    """

    def __init__(self, address: str, *, run: str, keep_spans: int) -> None:
        self.address = address
        self.worker_id = f"{PREFIX}{run}"
        self._me: dict[str, Any] = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": time.time(),
            "keep_spans": keep_spans,
        }
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="store-claim", daemon=True)

    def __enter__(self) -> StoreClaim:
        """Raises RunError while another run holds the store."""
        asyncio.run(self._take())
        self._thread.start()
        return self

    def __exit__(self, *_exc: Any) -> None:
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(Exception):  # the store may be gone; then nothing is held
            asyncio.run(self._report(ended=True))

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_EVERY_S):
            try:
                asyncio.run(self._report())
            except Exception as exc:
                # The daemon notices a store that is gone, and says so; a beat missed is no fault.
                logger.debug("heartbeat: %s", exc)

    async def _report(self, **more: Any) -> None:
        async with store_at(self.address) as client:
            await client.update_worker(self.worker_id, heartbeat_stats=self._me | more)

    async def _take(self) -> None:
        await self._report()
        async with store_at(self.address) as client:
            for other in await client.query_workers(worker_id_contains=PREFIX):
                if other.worker_id != self.worker_id and self._holds(other):
                    await self._report(ended=True)
                    raise RunError(self._refusal(other))
            left = await client.query_rollouts(status_in=OPEN)  # pyright: ignore[reportArgumentType]
            for rollout in left:
                await client.update_rollout(rollout.rollout_id, status="cancelled")
        if left:
            logger.warning("the store at %s: cancelled %d rollouts of an earlier run", self.address, len(left))

    def _holds(self, other: Any) -> bool:
        """True when `other` is a live trainer that came before this one."""
        stats = other.heartbeat_stats or {}
        if stats.get("ended") or time.time() - (other.last_heartbeat_time or 0.0) > LIVE_S:
            return False
        if stats.get("host") == self._me["host"] and not psutil.pid_exists(int(stats.get("pid", 0))):
            return False
        return (stats.get("since", 0.0), other.worker_id) < (self._me["since"], self.worker_id)

    def _refusal(self, other: Any) -> str:
        stats = other.heartbeat_stats or {}
        seen_s = time.time() - (other.last_heartbeat_time or 0.0)
        return (
            f"the store at {self.address} serves another run, {other.worker_id.removeprefix(PREFIX)} (process "
            f"{stats.get('pid')} on {stats.get('host')}, seen {seen_s:.0f} s ago). One store serves one run: wait for "
            "its end, or start another store with `python -m agl_plugin.store --port ... --path ...`"
        )
