"""Progress of a run on the console: one line per event of metrics.jsonl, with step, ETA and reward."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

from foundation import run_folder
from foundation.console import LINE_EVERY_S, Heartbeat, duration
from foundation.files import read_lines

LOOK_EVERY_S = 0.5
STARTING = "starting Ray, the trainer and vLLM (15 s on a quiet CPU; log: train.log in the run folder)"


def describe(row: dict[str, Any], *, eta_s: float | None) -> str:
    """One line for a metrics row, or an empty string when there is nothing to say."""
    if row["kind"] == "checkpoint":
        return f"step {row['step']}/{row['of_steps']}  checkpoint saved in {duration(row['seconds'])}"
    if "train/loss" in row:
        return _of_files(row, eta_s=eta_s or 0)
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


def _of_files(row: dict[str, Any], *, eta_s: float) -> str:
    """A step that learns from files."""
    accuracy = row.get("train/token_accuracy", row.get("train/pair_accuracy"))
    measured = f"  accuracy {accuracy:.3f}" if accuracy is not None else ""
    norm = row.get("actor/grad_norm", 0.0)
    label = f"step {row['step']}/{row['of_steps']}"
    return f"{label}  loss {row['train/loss']:.4f}{measured}  grad {norm:.3g}  ETA {duration(eta_s)}"


class Progress:
    """Follows metrics.jsonl in a thread and prints a line per event.

    Steps that learn from files are fast: of them the first and the last, and one every LINE_EVERY_S.
    What is being waited for is told by a spinner, and where the output is no terminal by a line now and then.
    """

    def __init__(self, console: Console, run_dir: Path, *, what: str = STARTING) -> None:
        self.console = console
        self.path = run_dir / run_folder.METRICS
        self.started = time.monotonic()
        self._shown, self._said_s = 0, -math.inf
        self._train_s: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="progress", daemon=True)
        self._waiting_for, self._began = what.partition(" (")[0], what
        self._status = Status(self._waiting_for, console=console)
        self._heartbeat = Heartbeat(console, lambda: self._waiting_for)

    def __enter__(self) -> Progress:
        self.console.print(self._began)
        self._status.start()
        self._thread.start()
        self._heartbeat.__enter__()
        return self

    def __exit__(self, *_exc: Any) -> None:
        self._stop.set()
        self._thread.join()
        self._heartbeat.__exit__()
        self._look()
        self._status.stop()

    def _loop(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        rows = read_lines(self.path)
        if rows and not self._shown:
            self.console.print(f"first result after {duration(time.monotonic() - self.started)}")
        for row in rows[self._shown :]:
            if row["kind"] == "train":
                self._train_s.append(row["seconds"])
            left = row["of_steps"] - row["step"]
            eta_s = left * sum(self._train_s) / len(self._train_s) if self._train_s else None
            if self._is_due(row) and (text := describe(row, eta_s=eta_s)):
                self.console.print(text)
            for warning in row.get("warnings", []):
                self.console.print(f"warning: {warning}", style="yellow", markup=False)
            self._waiting_for = f"step {min(row['step'] + 1, row['of_steps'])}/{row['of_steps']}"
            self._status.update(self._waiting_for)
            self._heartbeat.line_printed()
        self._shown = len(rows)

    def _is_due(self, row: dict[str, Any]) -> bool:
        if "train/loss" not in row or row["step"] == row["of_steps"]:
            return True
        now = time.monotonic()
        is_due = now - self._said_s >= LINE_EVERY_S
        self._said_s = now if is_due else self._said_s
        return is_due
