"""What benchmarks share: an endpoint in a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sql_agent.testing.server import Handler, openai_server

FORK = multiprocessing.get_context("fork")


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
