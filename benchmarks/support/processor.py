"""Processor time of a process and of all that it started."""

from __future__ import annotations

from contextlib import suppress

import psutil


def cpu_s(pid: int) -> float:
    """Seconds of processor time of a process and of all that it started, also of those that ended and were waited for;
    0 for none. Raises psutil.NoSuchProcess where the process itself is not there.
    """
    if not pid:
        return 0.0
    first = psutil.Process(pid)
    while True:
        everyone = [first, *first.children(recursive=True)]
        with suppress(psutil.NoSuchProcess):  # one ended meanwhile: its time is its parent's now
            return sum(sum(process.cpu_times()[:4]) for process in everyone)
