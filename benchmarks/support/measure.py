"""What benchmarks share: the time of a call, an endpoint in a process of its own."""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sql_agent.testing.server import Handler, openai_server

ROUNDS = 5
FORK = multiprocessing.get_context("fork")


def per_call_s(call: Callable[[], Any], n: int) -> float:
    """Median over ROUNDS rounds of the mean time of `n` calls."""
    return statistics.median(timeit.repeat(call, gc.enable, number=n, repeat=ROUNDS)) / n


@contextmanager
def own_process(
    handler: Handler, *, figures: Callable[[], Any] = lambda: None
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The address of an endpoint in a process of its own, and what ends it and gives the `figures` it has there."""
    ours, theirs = FORK.Pipe()

    def serve() -> None:
        with openai_server(handler, keep_alive=True) as server:
            theirs.send(server.base_url)
            theirs.recv()
        theirs.send(figures())

    process = FORK.Process(target=serve)
    process.start()

    def end() -> Any:
        ours.send("end")
        return ours.recv()

    try:
        yield ours.recv(), end
    finally:
        process.kill()
        process.join(10)
