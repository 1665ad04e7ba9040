"""A training's work on a store, without a network: so many rollouts, with steps, spans of calls and their pruning.

  .venv/bin/python -m benchmarks.store [--rollouts 10000]

On the memory store and on the one that lasts, each in a process of its own; a row per tenth of the rollouts: operations
per second and CPU in ms per operation since the last row, memory of the process, size of the file, and how many of the
rollouts that were ended the store does not have as such.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer

from foundation.environment import COMMON_ENV

AT_ONCE, PER_STEP, CALLS = 64, 256, 3
QUESTION = {"id": "q1", "question": "甲药的适应症是什么？" * 10, "answer": "高血压；心绞痛"}
IDS = json.dumps(list(range(100_000, 100_600)))  # of a call's prompt, as its span holds them
OPS = 3 + CALLS  # queue, take, end, and a span per call
HEADER = "store    rollouts   ops/s   ms per op   RSS MiB  file MiB    lost"


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


async def measured(backend: str, n_rollouts: int, folder: Path) -> None:
    """Play them all, and print a row after each tenth."""
    store, me, file, numbers = make_store(backend, folder), psutil.Process(), folder / "store.db", itertools.count()
    tenth = n_rollouts // 10
    for done in range(tenth, n_rollouts + 1, tenth):
        started, cpu = time.monotonic(), time.process_time()
        part = itertools.islice(numbers, tenth)
        await asyncio.gather(*(play(store, part) for _ in range(AT_ONCE)))
        took_s, cpu_s, ops = time.monotonic() - started, time.process_time() - cpu, tenth * OPS
        ended = await store.query_rollouts(status_in=["succeeded"], limit=0)
        rss_mib = me.memory_info().rss / 2**20
        file_mib = file.stat().st_size / 2**20 if file.exists() else 0
        sizes = f"{rss_mib:10.0f}{file_mib:10.0f}{done - ended.total:8}"
        print(f"{backend:9}{done:8}{ops / took_s:8.0f}{1000 * cpu_s / ops:12.2f}{sizes}", flush=True)


def _measure(backend: str, n_rollouts: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measured(backend, n_rollouts, Path(folder)))


def main(rollouts: Annotated[int, typer.Option(min=10, help="so many on each store")] = 5000) -> None:
    """Measure both stores. Status 1: one of them ended early."""
    os.environ |= {name: os.environ.get(name, value) for name, value in COMMON_ENV.items()}
    print(HEADER)
    for backend in ("memory", "sqlite"):
        process = multiprocessing.get_context("spawn").Process(target=_measure, args=(backend, rollouts))
        process.start()
        process.join()
        if process.exitcode:
            raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
