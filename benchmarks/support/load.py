"""What a benchmark measures with: a server in a process of its own, and processor time."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
import psutil

from foundation.processes import end_with_parent

START_S = 300.0


@contextmanager
def server(command: list[str], health: str, **environment: str) -> Iterator[int]:
    """The process id of a silent server, from when `health` answers. Raises RuntimeError where it never does."""
    silent, variables = subprocess.DEVNULL, os.environ | environment
    with subprocess.Popen(command, stdout=silent, stderr=silent, env=variables, preexec_fn=end_with_parent) as process:
        try:
            deadline_s = time.monotonic() + START_S
            while not _is_up(health):
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise RuntimeError(f"{' '.join(command)} did not start; its status is {process.returncode}")
                time.sleep(0.2)
            yield process.pid
        finally:
            process.terminate()


def _is_up(address: str) -> bool:
    try:
        return httpx.get(address, trust_env=False).is_success
    except httpx.HTTPError:
        return False


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
