"""A call of the API that goes on by itself: `start(train, "smoke_cpu", ci_fast=True)` gives a Job at once.

Guarantees: what the call would give or raise is what `wait` gives or raises; `stop` and the end of the program end its
command in order, as Ctrl-C in a terminal does, and nothing else; Ctrl-C and a notebook's stop do not reach it.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import os
import signal
import subprocess
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Literal

Status = Literal["running", "finished", "failed", "stopped"]
EXIT_S = 60.0  # what a command gets to end in order when the program ends

current: contextvars.ContextVar[Job[Any] | None] = contextvars.ContextVar("job", default=None)
_jobs: weakref.WeakSet[Job[Any]] = weakref.WeakSet()


class Job[T]:
    """A call under way. `lines` has the end of what its command printed."""

    def __init__(self, call: Callable[[], T]) -> None:
        self.lines: list[str] = []
        self._done: Future[T] = Future()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, args=[call], daemon=True, name="api-job")
        _jobs.add(self)
        self._thread.start()

    @property
    def status(self) -> Status:
        if not self._done.done():
            return "running"
        return "stopped" if self._is_stopped else "failed" if self._done.exception() else "finished"

    def wait(self, timeout_s: float | None = None) -> T:
        """What the call gives. Raises what it raises, and TimeoutError when it goes on after `timeout_s`."""
        return self._done.result(timeout_s)

    def stop(self) -> None:
        """End it in order: `wait` then raises RunError, of training TrainingFailed with what there is of the run."""
        with self._lock:
            if self._done.done():
                return
            self._is_stopped = True
            self._interrupt()

    def took(self, process: subprocess.Popen[str]) -> None:
        """Told by the call: this is its command."""
        with self._lock:
            self._process = process
            if self._is_stopped:
                self._interrupt()

    def _interrupt(self) -> None:
        if self._process and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGINT)

    def _run(self, call: Callable[[], T]) -> None:
        current.set(self)
        try:
            self._done.set_result(call())
        except BaseException as exc:  # whatever it is, it belongs to who waits
            self._done.set_exception(exc)

    def __repr__(self) -> str:
        return f"<Job {self.status}>"


def start[**P, T](call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Job[T]:
    """Start a call of this API (train, sft, dpo, evaluate, export) and return at once."""
    return Job(lambda: call(*args, **kwargs))


@atexit.register
def _stop_all() -> None:
    for job in list(_jobs):
        job.stop()
    for job in list(_jobs):
        job._thread.join(EXIT_S)
