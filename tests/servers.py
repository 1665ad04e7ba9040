"""A database server as a child process of a test."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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
