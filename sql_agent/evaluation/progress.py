"""How far an evaluation is: a bar with the time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from foundation.console import Heartbeat, duration


class Meter:
    """Counts trials of the whole evaluation, all models together. A context manager; not for several threads."""

    def __init__(self, console: Console, *, total: int) -> None:
        self._console = console
        self._said = ""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        # Trials end in bursts, as many as are in flight: the speed is taken over ten minutes.
        self._bar = Progress(
            *columns,
            *(TextColumn("left"), TimeRemainingColumn()),
            console=console,
            disable=not console.is_terminal,
            speed_estimate_period=600.0,
        )
        self._task = self._bar.add_task("", total=total)
        self._heartbeat = Heartbeat(console, self._now)

    def __enter__(self) -> Meter:
        self._bar.start()
        self._heartbeat.__enter__()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._heartbeat.__exit__()
        self._bar.stop()

    def describe(self, text: str, detail: str = "") -> None:
        """Say what is going on; without a terminal each text once, and no details."""
        self._bar.update(self._task, description=escape(f"{text}{detail}"))
        if not self._console.is_terminal and text != self._said:
            self._said = text
            self._console.print(text, markup=False)
            self._heartbeat.line_printed()

    def advance(self) -> None:
        self._bar.advance(self._task)

    def _now(self) -> str:
        (task,) = self._bar.tasks
        left = f", {duration(task.time_remaining)} left" if task.time_remaining else ""
        return f"{self._said}: {task.completed} of {task.total} trials{left}"
