"""A training's work on a store, without a network: so many rollouts, with steps, spans of calls and their pruning.

  .venv/bin/python -m benchmarks.store [--rollouts 10000]
  .venv/bin/python -m benchmarks.store --postgres VARIABLE   1, 2 and 4 stores over one empty database

On the memory store and on the one that lasts, each in a process of its own; a row per tenth of the rollouts: operations
per second and CPU in ms per operation since the last row, memory of the process, size of the file, and how many of the
rollouts that were ended the store does not have as such. Over PostgreSQL a row per number of stores: what all of them
did, their CPU, that of the server's processes (where they are on this machine), the share of time that a connection
waited for another's lock, and how busy this machine's cores were.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer

from benchmarks.support.load import cpu_s
from foundation.environment import COMMON_ENV

AT_ONCE, PER_STEP, CALLS = 64, 256, 3
QUESTION = {"id": "q1", "question": "甲药的适应症是什么？" * 10, "answer": "高血压；心绞痛"}
IDS = json.dumps(list(range(100_000, 100_600)))  # of a call's prompt, as its span holds them
OPS = 3 + CALLS  # queue, take, end, and a span per call
HEADER = "store    rollouts   ops/s   ms per op   RSS MiB  file MiB    lost"
STORES_HEADER = "stores   rollouts   ops/s   ms per op  server ms   lock waits   cores busy    lost"
WARM_UP = 20  # rollouts of each store before anything is measured
SAMPLE_S = 0.02


def make_store(backend: str, folder: Path) -> Any:
    if backend == "memory":
        from agentlightning.store.memory import InMemoryLightningStore

        return InMemoryLightningStore(thread_safe=True)
    from agl_plugin.store.sqlite import SqliteLightningStore

    return SqliteLightningStore(folder / "store.db")


async def play(store: Any, numbers: Iterator[int], worker: str) -> None:
    """One caller: rollout after rollout, until the numbers end."""
    from agentlightning.types import Span

    for number in numbers:
        if number % PER_STEP == 0:
            await store.add_resources({})
        await store.enqueue_rollout(QUESTION, mode="train")
        rollout = await store.dequeue_rollout(worker_id=worker)
        ids = {"rollout_id": rollout.rollout_id, "attempt_id": rollout.attempt.attempt_id}
        for call in range(CALLS):
            attributes = {"prompt_token_ids": IDS, "call": call}
            await store.add_span(Span.from_attributes(attributes=attributes, sequence_id=call + 1, **ids))
        await store.update_attempt(*ids.values(), status="succeeded")


async def played(store: Any, numbers: Iterator[int], *, at_once: int) -> tuple[float, float]:
    """Seconds, and CPU seconds of this process, until the numbers end."""
    started, cpu = time.monotonic(), time.process_time()
    await asyncio.gather(*(play(store, numbers, f"w{os.getpid()}-{n}") for n in range(at_once)))
    return time.monotonic() - started, time.process_time() - cpu


async def measured(backend: str, n_rollouts: int, folder: Path) -> None:
    """Play them all, and print a row after each tenth."""
    store, file = make_store(backend, folder), folder / "store.db"
    tenth = n_rollouts // 10
    ops = tenth * OPS
    for done in range(tenth, n_rollouts + 1, tenth):
        took_s, cpu_s = await played(store, iter(range(done - tenth, done)), at_once=AT_ONCE)
        rss_mib = psutil.Process().memory_info().rss / 2**20
        file_mib = file.stat().st_size / 2**20 if file.exists() else 0
        n_ended = (await store.query_rollouts(status_in=["succeeded"], limit=0)).total
        sizes = f"{rss_mib:10.0f}{file_mib:10.0f}{done - n_ended:8}"
        print(f"{backend:9}{done:8}{ops / took_s:8.0f}{1000 * cpu_s / ops:12.2f}{sizes}", flush=True)


def _measure(backend: str, n_rollouts: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measured(backend, n_rollouts, Path(folder)))


def _serve(address: str, numbers: range, at_once: int, starts: Any, ended: Any) -> None:
    """One store of several: what it took and what its process did."""
    import uvloop  # as the store's server has it

    from agl_plugin.store.postgres import PostgresDatabase
    from agl_plugin.store.sqlite import LastingStore

    async def work() -> tuple[float, float]:
        store = LastingStore(PostgresDatabase(address))
        await played(store, iter(range(WARM_UP)), at_once=at_once)
        await asyncio.to_thread(starts.wait)
        figures = await played(store, iter(numbers), at_once=at_once)
        await store.close()
        return figures

    ended.put(uvloop.run(work()))


def server_of(connection: Any) -> int:
    """The process of the PostgreSQL server that is asked; 0 where it runs on another machine."""
    sql = "SELECT inet_server_addr() IS NULL OR inet_server_addr() << '127.0.0.0/8', pg_backend_pid()"
    is_here, pid = connection.execute(sql).fetchone()
    return psutil.Process(pid).ppid() if is_here else 0


def waits(connection: Any, until: Callable[[], bool]) -> float:
    """The share of the time, in percent, that the stores' transactions spent on waiting for a lock."""
    counts: Counter[bool] = Counter()
    sql = (
        "SELECT wait_event_type IS NOT DISTINCT FROM 'Lock' FROM pg_stat_activity "
        "WHERE application_name = 'agentgrpo-store' AND state <> 'idle'"
    )
    while until():
        counts.update(waiting for (waiting,) in connection.execute(sql))
        time.sleep(SAMPLE_S)
    return 100 * counts[True] / max(counts.total(), 1)


def measure_stores(n_stores: int, address: str, n_rollouts: int) -> None:
    """A row of so many stores over one database."""
    import psycopg

    import agl_plugin.store.sqlite  # noqa: F401  # once, for all

    forked = multiprocessing.get_context("fork")
    starts, ended = forked.Barrier(n_stores + 1), forked.Queue()
    share, at_once = n_rollouts // n_stores, AT_ONCE // n_stores
    parts = [range(n * share, (n + 1) * share) for n in range(n_stores)]
    stores = [forked.Process(target=_serve, args=(address, part, at_once, starts, ended)) for part in parts]
    for store in stores:
        store.start()
    with psycopg.connect(address, autocommit=True) as connection:
        starts.wait()
        before, server = succeeded(connection), server_of(connection)
        server_s, _ = cpu_s(server), psutil.cpu_percent()
        waited = waits(connection, lambda: ended.qsize() < n_stores)
        busy, server_s = psutil.cpu_percent(), cpu_s(server) - server_s
        took_s, store_s = zip(*(ended.get() for _ in stores), strict=True)
        for store in stores:
            store.join()
        lost = before + share * n_stores - succeeded(connection)
    ops = share * n_stores * OPS
    figures = f"{ops / max(took_s):8.0f}{1000 * sum(store_s) / ops:12.2f}{1000 * server_s / ops:11.2f}"
    print(f"{n_stores:6}{share * n_stores:11}{figures}{waited:11.1f} %{busy:11.0f} %{lost:8}", flush=True)


def succeeded(connection: Any) -> int:
    return connection.execute("SELECT count(*) FROM rollouts WHERE status = 'succeeded'").fetchone()[0]


def main(
    rollouts: Annotated[int, typer.Option(min=10, help="so many on each store")] = 5000,
    postgres: Annotated[str, typer.Option(help="the variable with the address of a PostgreSQL database")] = "",
) -> None:
    """Measure the store in memory and the one in SQLite, or with --postgres 1, 2 and 4 stores over that database.

    The exit status is 1 when a store ended early.
    """
    for name, value in COMMON_ENV.items():
        os.environ.setdefault(name, value)
    if postgres:
        from agl_plugin.store.__main__ import address_in

        print(STORES_HEADER)
        for n_stores in (1, 2, 4):
            measure_stores(n_stores, address_in(postgres), rollouts)
        return
    print(HEADER)
    for backend in ("memory", "sqlite"):
        process = multiprocessing.get_context("spawn").Process(target=_measure, args=(backend, rollouts))
        process.start()
        process.join()
        if process.exitcode:
            raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
