"""What a person sees of a run: progress on the console, everything else in the run's log file.

Ray, verl, vLLM and the runners write thousands of lines to stdout and stderr; both go to the log at the level of file
descriptors (so child processes too), and the console keeps one line per event, with step, ETA and reward.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

LINE_EVERY_S = 15.0
# C0 and C1 controls without newline and tab, marks that turn the direction of text, lone surrogates.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
notes = Console(stderr=True, highlight=False, soft_wrap=True)  # what a command says beside its output


def tell(text: str, detail: str = "") -> None:
    """A note of what is being waited for; not again where only the detail, of a display that changes, is new."""
    if not detail:
        notes.print(text, markup=False)


def clean(text: str) -> str:
    r"""Text that is safe to print: a control character becomes its escape, ESC is \x1b."""
    text = text.replace("\r\n", "\n")
    return CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}" if ord(m[0]) < 256 else f"\\u{ord(m[0]):04x}", text)


class _Said(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {super().format(record)}"


def log_warnings(*, debug: bool = False) -> None:
    """Have warnings on stderr, as `warning: text`; with `debug` everything, with the loggers' names."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT) if debug else _Said())
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, handlers=[handler])


@contextlib.contextmanager
def quiet(log: Path, *, enabled: bool = True) -> Iterator[Console]:
    """Send file descriptors 1 and 2 to `log` and yield a console on the original stdout."""
    if not enabled:
        yield Console()
        return
    saved = os.dup(1), os.dup(2)
    _redirect(log)
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


def own_terminal() -> Console:
    """A console on a descriptor of its own: it goes on writing to the present stdout after `close_output`."""
    # closefd: it is open as long as the process lives.
    stdout = os.fdopen(os.dup(1), "w", encoding="utf-8", closefd=False)
    return Console(file=stdout, highlight=False, soft_wrap=True)


def close_output(log: Path) -> None:
    """From here on file descriptors 1 and 2 of this process go to `log`, for good.

    Before the last words of a command: threads of others may go on logging, and nothing of theirs belongs below.
    """
    with contextlib.suppress(OSError):  # the log's disk is full
        _redirect(log)


def _redirect(log: Path) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)


class Heartbeat:
    """Where the output is no terminal: a line whenever LINE_EVERY_S passed without one. A context manager.

    `text` says what is going on; the time since the start follows it. On a terminal a bar or a spinner does the same.
    """

    def __init__(self, console: Console, text: Callable[[], str], *, every_s: float = LINE_EVERY_S) -> None:
        self._console, self._text, self._every_s = console, text, every_s
        self._started = self._last = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._started = self._last = time.monotonic()
        if not self._console.is_terminal:
            self._thread.start()
        return self

    def __exit__(self, *_exc: Any) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def line_printed(self) -> None:
        """Another line has just been printed."""
        self._last = time.monotonic()

    def _loop(self) -> None:
        while not self._stop.wait(max(0.01, self._last + self._every_s - time.monotonic())):
            now = time.monotonic()
            if now - self._last >= self._every_s:
                self._last = now
                self._console.print(f"{self._text()}, {duration(now - self._started)}", markup=False)


def duration(seconds: float) -> str:
    """A short duration: 42s, 3m05s, 2h10m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
