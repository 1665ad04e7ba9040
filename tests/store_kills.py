"""A store process that is killed at random moments under load, and a checker that counts what it had acknowledged.

The load is what a training does: rollouts are queued, taken, get spans and numbers, and end. Each answer that came is
written down; what was asked and not answered may have happened or not, as a whole. The clients do not try again.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import sqlite3
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import agentlightning as agl
import aiohttp
import httpx
from agentlightning.types import AttemptedRollout, EnqueueRolloutRequest, Span

from agl_plugin.store.__main__ import serve
from foundation.net import free_port

N_CLIENTS = 8
AWAY = (aiohttp.ClientError, OSError, TimeoutError)


class Store:
    """The process, and where its file is."""

    def __init__(self, path: Path) -> None:
        self.path, self.port = path, free_port()
        self.address = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Store:
        self.start()
        return self

    def __exit__(self, *_exc: Any) -> None:
        self.kill()

    def start(self, *, limit_s: float = 120.0) -> None:
        """Start it, and return when it answers. It is forked: its imports take longer than what is tested."""
        self.process = multiprocessing.get_context("fork").Process(target=self._serve, daemon=True)
        self.process.start()
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            assert self.process.is_alive(), self.path.with_suffix(".log").read_text()
            with suppress(httpx.HTTPError):
                if httpx.get(f"{self.address}/v1/agl/health", timeout=2.0, trust_env=False).is_success:
                    return
            time.sleep(0.05)
        raise TimeoutError(self.address)

    def _serve(self) -> None:
        with self.path.with_suffix(".log").open("ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        asyncio.run(serve(self.path, host="127.0.0.1", port=self.port, log_level="ERROR"))

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.join()


class Checker:
    """What the store acknowledged, and whether it is there."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.queued: set[str] = set()
        self.asked_to_queue = 0
        self.taken: list[tuple[str, str]] = []  # rollout, attempt
        self.spans: list[tuple[str, str, str]] = []
        self.numbers: list[tuple[str, int]] = []
        self.ended: set[tuple[str, str]] = set()

    def load_until_killed(self, *, seed: int) -> None:
        """Load from several clients; after a random time the store is killed, and started again."""
        chance = random.Random(seed)
        asyncio.run(self._load(chance))
        self.store.start()

    async def _load(self, chance: random.Random) -> None:
        clients = [agl.LightningStoreClient(self.store.address, retry_delays=()) for _ in range(N_CLIENTS)]
        tasks = [asyncio.create_task(self._work(client, number)) for number, client in enumerate(clients)]
        await asyncio.sleep(chance.uniform(0.05, 1.0))
        self.store.kill()
        await asyncio.gather(*tasks)
        for client in clients:
            await client.close()

    async def _work(self, client: agl.LightningStoreClient, number: int) -> None:
        with suppress(*AWAY):
            while True:
                await self._queue(client)
                for rollout in await client.dequeue_many_rollouts(limit=2, worker_id=f"w{number}"):
                    await self._play(client, rollout)
                if not self.store.process.is_alive():  # its dequeue tells nobody of a store that is gone
                    return

    async def _queue(self, client: agl.LightningStoreClient) -> None:
        self.asked_to_queue += 2
        requests = [EnqueueRolloutRequest(input={"question": "甲药" * 50}) for _ in range(2)]
        self.queued |= {rollout.rollout_id for rollout in await client.enqueue_many_rollouts(requests)}

    async def _play(self, client: agl.LightningStoreClient, rollout: AttemptedRollout) -> None:
        ids = (rollout.rollout_id, rollout.attempt.attempt_id)
        self.taken.append(ids)
        for _ in range(2):
            number = await client.get_next_span_sequence_id(*ids)
            self.numbers.append((ids[0], number))
            span = Span.from_attributes(
                attributes={"token_ids": list(range(300))},
                **{"rollout_id": ids[0], "attempt_id": ids[1], "sequence_id": number, "name": "call"},
            )
            assert await client.add_span(span)
            self.spans.append((*ids, span.span_id))
        await client.update_attempt(*ids, status="succeeded")
        self.ended.add(ids)

    def check(self) -> dict[str, int]:
        """Compare the file with what was acknowledged. Returns what was counted."""
        self.store.kill()
        database = sqlite3.connect(self.store.path)
        try:
            return self._check(database)
        finally:
            database.close()

    def _check(self, database: sqlite3.Connection) -> dict[str, int]:
        def rows(sql: str) -> list[Any]:
            return database.execute(sql).fetchall()

        assert rows("PRAGMA integrity_check") == [("ok",)]
        status = dict(rows("SELECT rollout_id, status FROM rollouts"))
        attempts = {(ro, at): state for ro, at, state in rows("SELECT rollout_id, attempt_id, status FROM attempts")}
        spans = Counter(rows("SELECT rollout_id, attempt_id, span_id FROM spans"))
        queue = Counter(rows("SELECT item FROM rollout_queue"))
        # Nothing that was acknowledged is lost.
        assert self.queued <= status.keys()
        assert set(self.taken) <= attempts.keys() and set(self.spans) <= spans.keys()
        assert all(attempts[ids] == "succeeded" and status[ids[0]] == "succeeded" for ids in self.ended)
        # Nothing is there twice.
        assert len(status) <= self.asked_to_queue
        assert len(set(self.numbers)) == len(self.numbers)
        assert max(Counter(rollout for rollout, _ in self.taken).values()) == 1
        assert max(Counter(rollout for rollout, _ in attempts).values()) == 1
        assert set(spans.values()) == {1} and set(queue.values()) <= {1}
        # Nothing is half done: what waits is in the queue, what was taken has an attempt.
        waiting = {f'"{rollout}"' for rollout, state in status.items() if state == "queuing"}
        assert waiting == {item for (item,) in queue}
        assert {rollout for rollout, _ in attempts} == {one for one, state in status.items() if state != "queuing"}
        told = len(self.queued) + len(self.taken) + len(self.spans) + len(self.numbers) + len(self.ended)
        return {"acknowledged": told, "rollouts": len(status), "spans": len(spans), "ended": len(self.ended)}
