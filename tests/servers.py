"""Servers of tests: a database as a child process, and what answers as a store does."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any


class HealthyStore(BaseHTTPRequestHandler):
    """Says as agent-lightning's store does that it is well, and knows nothing else."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/v1/agl/health" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""


@contextmanager
def running(command: Sequence[Any], log: Path, *, answers: Callable[[], bool], **run: Any) -> Iterator[None]:
    """The command's process, from when it `answers` until the block ends."""
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, **run)
        try:
            for _ in range(600):
                assert process.poll() is None, f"the server ended: {log.read_text()[-2000:]}"
                if answers():
                    break
                time.sleep(0.1)
            else:
                raise AssertionError("the server did not start within 60 s")
            yield
        finally:
            process.terminate()
            process.wait(60)
