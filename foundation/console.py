"""What a person sees of a run: progress on the console, everything else in the run's log file.

Ray, verl, vLLM and the runners write thousands of lines to stdout and stderr; both go to the log at the level of file
descriptors (so child processes too), and the console keeps one line per event, with step, ETA and reward.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console


@contextlib.contextmanager
def quiet(log: Path, *, enabled: bool = True) -> Iterator[Console]:
    """Send file descriptors 1 and 2 to `log` and yield a console on the original stdout."""
    if not enabled:
        yield Console()
        return
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
    try:
        with os.fdopen(os.dup(saved[0]), "w", encoding="utf-8") as terminal:
            yield Console(file=terminal, highlight=False, soft_wrap=True)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):  # the log's disk is full
                stream.flush()
        for fd, keep in zip((1, 2), saved, strict=True):
            os.dup2(keep, fd)
            os.close(keep)


def duration(seconds: float) -> str:
    """A short duration: 42s, 3m05s, 2h10m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
