"""A training's work on a store, without a network: so many rollouts, with steps, spans of calls and their pruning.

  python -m benchmarks.support.store_load memory|sqlite ROLLOUTS FOLDER

One JSON line per tenth of the rollouts: operations per second and CPU in ms per operation since the last line, memory
of the process, size of the file, and how many of the rollouts that were ended the store does not have as such.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

AT_ONCE, PER_STEP, CALLS = 64, 256, 3
QUESTION = {"id": "q1", "question": "甲药的适应症是什么？" * 10, "answer": "高血压；心绞痛"}
IDS = json.dumps(list(range(100_000, 100_600)))  # of a call's prompt, as its span holds them
OPS = 3 + CALLS  # queue, take, end, and a span per call


@dataclass
class Look:
    """The store after so many rollouts."""

    backend: str
    rollouts: int
    ops_per_s: float
    cpu_ms_per_op: float
    rss_mib: float
    file_mib: float
    lost: int


def make_store(backend: str, folder: Path) -> Any:
    """The store of a backend."""
    if backend == "memory":
        from agentlightning.store.memory import InMemoryLightningStore

        return InMemoryLightningStore(thread_safe=True)
    from agl_plugin.store.sqlite import SqliteLightningStore

    return SqliteLightningStore(folder / "store.db")


async def play(store: Any, numbers: Iterator[int]) -> None:
    """One caller: rollout after rollout, until the numbers end."""
    from agentlightning.types import Span

    for number in numbers:
        if number % PER_STEP == 0:
            await store.add_resources({})
        await store.enqueue_rollout(QUESTION, mode="train")
        rollout = await store.dequeue_rollout(worker_id="w")
        ids = {"rollout_id": rollout.rollout_id, "attempt_id": rollout.attempt.attempt_id}
        for call in range(CALLS):
            attributes = {"prompt_token_ids": IDS, "call": call}
            await store.add_span(Span.from_attributes(attributes=attributes, sequence_id=call + 1, **ids))
        await store.update_attempt(*ids.values(), status="succeeded")


async def looks(backend: str, n_rollouts: int, folder: Path) -> None:
    """Play them all, and print a Look after each tenth."""
    store, me, file, numbers = make_store(backend, folder), psutil.Process(), folder / "store.db", itertools.count()
    tenth = n_rollouts // 10
    for done in range(tenth, n_rollouts + 1, tenth):
        started, cpu = time.monotonic(), time.process_time()
        part = itertools.islice(numbers, tenth)
        await asyncio.gather(*(play(store, part) for _ in range(AT_ONCE)))
        took_s, cpu_s, ops = time.monotonic() - started, time.process_time() - cpu, tenth * OPS
        kept = await store.query_rollouts(status_in=["succeeded"], limit=0)
        look = Look(
            backend=backend,
            rollouts=done,
            ops_per_s=round(ops / took_s, 1),
            cpu_ms_per_op=round(1000 * cpu_s / ops, 3),
            rss_mib=round(me.memory_info().rss / 2**20, 1),
            file_mib=round(file.stat().st_size / 2**20, 1) if file.exists() else 0.0,
            lost=done - kept.total,
        )
        print(json.dumps(asdict(look)), flush=True)


if __name__ == "__main__":
    asyncio.run(looks(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
