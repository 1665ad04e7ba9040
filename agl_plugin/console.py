"""What a person sees of a run: progress on the console, everything else in the run's log file.

Ray, verl, vLLM and the runners write thousands of lines to stdout and stderr; both go to the log at the level of file
descriptors (so child processes too), and the console keeps one line per event, with step, ETA and reward.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

from agl_plugin import run_folder

LOOK_EVERY_S = 0.5


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


def describe(row: dict[str, Any], *, eta_s: float | None) -> str:
    """One line for a metrics row, or an empty string when there is nothing to say."""
    if row["kind"] == "checkpoint":
        return f"step {row['step']}/{row['of_steps']}  checkpoint saved in {duration(row['seconds'])}"
    prefix = "rollout/" if row["kind"] == "train" else "val/"
    if f"{prefix}rollouts" not in row:
        return ""
    parts = " + ".join(
        f"{k.rpartition('/')[2]} {v:.3f}" for k, v in row.items() if k.startswith(f"{prefix}reward_parts/")
    )
    rollouts, scored = int(row[f"{prefix}rollouts"]), int(row[f"{prefix}scored"])
    reward = row.get(f"{prefix}reward_mean")
    text = f"reward {reward:.3f} ({parts})" if reward is not None else "reward none"
    label = f"step {row['step']}/{row['of_steps']}" if row["kind"] == "train" else f"validation at step {row['step']}"
    text = f"{label}  {text}  scored {scored}/{rollouts}  {duration(row['seconds'])}"
    if row["kind"] == "train":
        norm = row.get("actor/grad_norm")
        grad = f"{norm:.3g}" if norm is not None else "none"
        text += f"  grad {grad}  ETA {duration(eta_s or 0)}"
    return text


class Progress:
    """Follows metrics.jsonl in a thread and prints a line per event; a spinner says what is being waited for."""

    def __init__(self, console: Console, run_dir: Path) -> None:
        self.console = console
        self.path = run_dir / run_folder.METRICS
        self.started = time.monotonic()
        self._shown = 0
        self._train_s: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="progress", daemon=True)
        self._status = Status("starting Ray, the trainer and vLLM", console=console)

    def __enter__(self) -> Progress:
        self.console.print("starting Ray, the trainer and vLLM (1 to 3 minutes; log: train.log in the run folder)")
        self._status.start()
        self._thread.start()
        return self

    def __exit__(self, *_exc: Any) -> None:
        self._stop.set()
        self._thread.join()
        self._look()
        self._status.stop()

    def _loop(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        rows = run_folder.read_lines(self.path)
        if rows and not self._shown:
            self.console.print(f"first result after {duration(time.monotonic() - self.started)}")
        for row in rows[self._shown :]:
            if row["kind"] == "train":
                self._train_s.append(row["seconds"])
            left = row["of_steps"] - row["step"]
            eta_s = left * sum(self._train_s) / len(self._train_s) if self._train_s else None
            if text := describe(row, eta_s=eta_s):
                self.console.print(text)
            for warning in row.get("warnings", []):
                self.console.print(f"warning: {warning}", style="yellow", markup=False)
            self._status.update(f"step {min(row['step'] + 1, row['of_steps'])}/{row['of_steps']}")
        self._shown = len(rows)
