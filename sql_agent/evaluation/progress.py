"""How far an evaluation is: a bar with the time left on a terminal, a line at every tenth of the way elsewhere,
and one now and then."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from foundation.console import Heartbeat, duration

LINES = 10


class Meter:
    """Counts trials of the whole evaluation, all models together. A context manager; not for several threads."""

    def __init__(self, console: Console, *, total: int) -> None:
        self._console, self._total, self._done = console, total, 0
        self._since_s: float | None = None
        self._said = ""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        # Trials end in bursts, as many as are in flight: the speed is taken over ten minutes.
        self._bar = Progress(
            *columns, TextColumn("left"), TimeRemainingColumn(), console=console, speed_estimate_period=600.0
        )
        self._task = self._bar.add_task("", total=total)
        self._heartbeat = Heartbeat(console, self._now)

    def __enter__(self) -> Meter:
        if self._console.is_terminal:
            self._bar.start()
        self._heartbeat.__enter__()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._heartbeat.__exit__()
        if self._console.is_terminal:
            self._bar.stop()

    def describe(self, text: str, detail: str = "") -> None:
        """Say what is going on; without a terminal each text once, and no details."""
        self._bar.update(self._task, description=escape(f"{text}{detail}"))
        if not self._console.is_terminal and text != self._said:
            self._said = text
            self._print(text)

    def start(self) -> None:
        """Playing begins now: waiting for a model is no part of the speed."""
        self._since_s = self._since_s or time.monotonic()

    def advance(self) -> None:
        self._done += 1
        self._bar.advance(self._task)
        step = max(1, self._total // LINES)
        if not self._console.is_terminal and (self._done % step == 0 or self._done == self._total):
            spent_s = time.monotonic() - (self._since_s or time.monotonic())
            left = duration(spent_s / self._done * (self._total - self._done))
            self._print(f"{self._done} of {self._total} trials, {left} left")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False)
        self._heartbeat.line_printed()

    def _now(self) -> str:
        return f"{self._said}: {self._done} of {self._total} trials"
