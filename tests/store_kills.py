"""Store processes that are killed at random moments under load, and a checker that counts what they had acknowledged.

The load is what a training does: rollouts are queued, taken, get spans and numbers, and end; each request goes to any
of the stores. Each answer that came is written down; what was asked and not answered may have happened or not, as a
whole. agent-lightning's clients do not try again; the project's do, with a key.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import agentlightning as agl
import aiohttp
import httpx
from agentlightning.types import AttemptedRollout, EnqueueRolloutRequest, Span

from agl_plugin.store.__main__ import serve
from foundation.net import free_port

N_CLIENTS, AT_LEAST = 8, 30
AWAY = (aiohttp.ClientError, OSError, TimeoutError)


class Store:
    """A process that serves an SQLite file or the PostgreSQL database at an address."""

    def __init__(self, where: Path | str, log: Path) -> None:
        self.where, self.log, self.port = where, log, free_port()
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
            assert self.process.is_alive(), self.log.read_text()
            with suppress(httpx.HTTPError):
                if httpx.get(f"{self.address}/v1/agl/health", timeout=2.0, trust_env=False).is_success:
                    return
            time.sleep(0.05)
        raise TimeoutError(self.address)

    def _serve(self) -> None:
        with self.log.open("ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        asyncio.run(serve(self.where, host="127.0.0.1", port=self.port, log_level="ERROR"))

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.join()


class Checker:
    """What the stores acknowledged, and whether it is there."""

    def __init__(self, *stores: Store, client: Callable[[str], agl.LightningStoreClient]) -> None:
        self.stores, self._client, self._is_over = stores, client, False
        self.queued: set[str] = set()
        self.asked_to_queue = 0
        self.taken: list[tuple[str, str]] = []  # rollout, attempt
        self.spans: list[tuple[str, str, str]] = []
        self.numbers: list[tuple[str, int]] = []
        self.ended: set[tuple[str, str]] = set()

    def load_until_killed(self, *, seed: int) -> None:
        """Load from several clients; after a random time the first store is killed, and started again."""
        asyncio.run(self._load(random.Random(seed), self.stores[0].kill, goes_on=False))
        self.stores[0].start()

    def load_over(self, harm: Callable[[], None], *, seed: int) -> None:
        """Load during which `harm` is done, and which goes on after it."""
        asyncio.run(self._load(random.Random(seed), harm, goes_on=True))

    async def _load(self, chance: random.Random, harm: Callable[[], None], *, goes_on: bool) -> None:
        clients = [self._client(self.stores[n % len(self.stores)].address) for n in range(N_CLIENTS)]
        self._is_over = False
        tasks = [asyncio.create_task(self._work(chance, clients, number)) for number in range(N_CLIENTS)]
        await self._more_told()
        await asyncio.sleep(chance.uniform(0.05, 1.0))
        await asyncio.to_thread(harm)
        if goes_on:
            await self._more_told()
        self._is_over = True
        await asyncio.gather(*tasks)
        for client in clients:
            await client.close()

    async def _more_told(self) -> None:
        """Until so much more was acknowledged, however slow the machine is."""
        enough = self.n_told + AT_LEAST
        async with asyncio.timeout(300):
            while self.n_told < enough:
                await asyncio.sleep(0.02)

    @property
    def n_told(self) -> int:
        """Answers that came."""
        return sum(map(len, (self.queued, self.taken, self.spans, self.numbers, self.ended)))

    async def _work(self, chance: random.Random, clients: list[agl.LightningStoreClient], number: int) -> None:
        while not self._is_over:
            with suppress(*AWAY):
                await self._queue(chance.choice(clients))
                for rollout in await chance.choice(clients).dequeue_many_rollouts(limit=2, worker_id=f"w{number}"):
                    await self._play(chance, clients, rollout)

    async def _queue(self, client: agl.LightningStoreClient) -> None:
        self.asked_to_queue += 2
        requests = [EnqueueRolloutRequest(input={"question": "甲药" * 50}) for _ in range(2)]
        self.queued |= {rollout.rollout_id for rollout in await client.enqueue_many_rollouts(requests)}

    async def _play(
        self, chance: random.Random, clients: list[agl.LightningStoreClient], rollout: AttemptedRollout
    ) -> None:
        ids = (rollout.rollout_id, rollout.attempt.attempt_id)
        self.taken.append(ids)
        await asyncio.gather(*(self._call(chance.choice(clients), chance.choice(clients), *ids) for _ in range(3)))
        await chance.choice(clients).update_attempt(*ids, status="succeeded")
        self.ended.add(ids)

    async def _call(
        self, client: agl.LightningStoreClient, other: agl.LightningStoreClient, rollout_id: str, attempt_id: str
    ) -> None:
        """Two spans, one after the other: the second has the greater number, whichever store gave it."""
        before = 0
        for asked in (client, other):
            number = await asked.get_next_span_sequence_id(rollout_id, attempt_id)
            assert number > before, (rollout_id, before, number)
            before = number
            self.numbers.append((rollout_id, number))
            span = Span.from_attributes(
                attributes={"token_ids": list(range(300))},
                **{"rollout_id": rollout_id, "attempt_id": attempt_id, "sequence_id": number, "name": "call"},
            )
            await other.add_many_spans([span])
            self.spans.append((rollout_id, attempt_id, span.span_id))

    def check(self, rows: Callable[[str], list[Any]]) -> dict[str, int]:
        """Compare the database, of which `rows` gives those of a query, with what was acknowledged. Returns counts."""
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
        assert set(spans.values()) <= {1} and set(queue.values()) <= {1}
        # Nothing is half done: what waits is in the queue, what was taken has an attempt.
        waiting = {f'"{rollout}"' for rollout, state in status.items() if state == "queuing"}
        assert waiting == {item for (item,) in queue}
        assert {rollout for rollout, _ in attempts} == {one for one, state in status.items() if state != "queuing"}
        return {"acknowledged": self.n_told, "rollouts": len(status), "attempts": len(attempts), "spans": len(spans)}
