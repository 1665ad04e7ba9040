"""The processes of a run: peak memory of the whole tree, and no orphans at the end, kill -9 of the job included.

Covers descendants of this process (runners, a Ray started here, vLLM, the LLM proxy); not a Ray that ran before.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import resource
import signal
import sys
import threading
from multiprocessing import resource_tracker
from typing import Any

import psutil

from foundation import supervise

# Reading the tree's page tables costs the machine half a second of CPU.
SAMPLE_EVERY_S = 10.0

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
KEPT_BYTES = 2**30
MOST_FILES = 2**14
GC_THRESHOLDS = 20_000, 20, 50  # Python's own are 700, 10, 10
LARGEST_KEPT_BLOCKS = 2**28, 2**25  # older versions of glibc refuse more than 32 MiB


def die_with_parent() -> None:
    """Let Linux end this process when the one that started it is gone, however that one ended.

    Only for processes made by multiprocessing: theirs ask nobody when the parent is killed. Linux means the thread that
    made the process, which must therefore last as long as the parent.
    """
    if sys.platform != "linux" or multiprocessing.parent_process() is None:
        return
    supervise.prctl(supervise.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:  # it was killed before the line above
        os.kill(os.getpid(), signal.SIGKILL)


def end_with_parent() -> None:
    """Let Linux ask a program to end (SIGTERM) when the thread that starts it is gone: a `preexec_fn` of subprocess."""
    supervise.prctl(supervise.PR_SET_PDEATHSIG, signal.SIGTERM)


def keep_freed_memory() -> None:
    """Let glibc keep up to KEPT_BYTES of freed memory instead of giving each large tensor back to the system.

    A training step on a CPU asks for the same blocks again and again, and fetching their pages anew takes it a tenth
    of its time. Elsewhere than on glibc nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        any(mallopt(M_MMAP_THRESHOLD, size) for size in LARGEST_KEPT_BLOCKS)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def collect_rarely() -> None:
    """Leave what exists out of garbage collection, and look at new objects less often.

    For a server that has loaded all it needs: most of what the collector walks through is modules. Without a last
    collection, which would copy the memory that a forked process shares: 0.4 s after a trainer's imports.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def open_many_files() -> None:
    """As many files and connections as the system lets this process open, up to MOST_FILES: shells often give 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def tracker_pid() -> int | None:
    """multiprocessing's helper, one per process, which cleans up after its end; None where there is none yet."""
    return getattr(resource_tracker, "_resource_tracker")._pid  # noqa: B009


class ProcessTree:
    """Samples the descendants of this process in a thread, between `__enter__` and `__exit__`.

    Those that were there before it was made are the caller's (a notebook's workers, say), and Python's resource tracker
    serves the process to its end: they are measured, and never ended. `peak_gib` is the largest sum of proportional set
    sizes (shared pages counted once) plus this process, in GiB.
    """

    def __init__(self) -> None:
        self.peak_gib = 0.0
        self._seen: set[psutil.Process] = set()
        self._callers = set(psutil.Process().children(recursive=True))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="process-tree", daemon=True)

    def __enter__(self) -> ProcessTree:
        self._thread.start()
        return self

    def __exit__(self, *_exc: Any) -> None:
        self._stop.set()
        self._thread.join()
        self.sample()
        self.end_orphans()

    def _loop(self) -> None:
        while not self._stop.wait(SAMPLE_EVERY_S):
            self.sample()

    def sample(self) -> None:
        """Look once at all descendants."""
        me = psutil.Process()
        total = 0
        for process in [me, *me.children(recursive=True)]:
            try:
                if process != me and process not in self._callers:
                    self._seen.add(process)
                total += process.memory_full_info().pss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        self.peak_gib = max(self.peak_gib, total / 2**30)

    def end_orphans(self, *, grace_s: float = 5.0) -> int:
        """End what is left of the processes seen so far, first politely; returns how many were left."""
        left = alive = [p for p in self._seen if p.pid != tracker_pid() and self._lives(p)]
        for end in (psutil.Process.terminate, psutil.Process.kill):
            for process in alive:
                with contextlib.suppress(psutil.NoSuchProcess):
                    end(process)
            _, alive = psutil.wait_procs(alive, timeout=grace_s)
        return len(left)

    @staticmethod
    def _lives(process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return False


class Stop:
    """The handler of SIGINT and SIGTERM while steps are made."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> Stop:
        self._before = {number: signal.signal(number, self._on) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on(self, *_: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
