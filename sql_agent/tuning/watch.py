"""What a run with TRL leaves while it goes on: lines of metrics.jsonl; and how it is stopped.

Guarantees: one line per optimizer step and per checkpoint, under the names that the report knows; SIGTERM or Ctrl-C
lets the step end, and saves it where checkpoints are wanted; a second one ends the run at once.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from agl_plugin.update.fingerprint import sampled
from foundation import run_folder
from foundation.errors import RunError
from foundation.files import append_lines
from foundation.processes import Stop

# TRL's names -> those of metrics.jsonl.
NAMES = {
    "loss": "train/loss",
    "grad_norm": "actor/grad_norm",
    "learning_rate": "actor/lr",
    "mean_token_accuracy": "train/token_accuracy",
    "entropy": "health/entropy",
    "rewards/accuracies": "train/pair_accuracy",
    "rewards/margins": "train/pair_margin",
    "logps/chosen": "train/log_prob_chosen",
    "logps/rejected": "train/log_prob_rejected",
}


class Watch(TrainerCallback):
    """Writes what happens down, and ends the run when it is asked to."""

    def __init__(self, run_dir: Path, stop: Stop, *, saves: bool) -> None:
        self._file, self._stop, self._saves = run_dir / run_folder.METRICS, stop, saves
        self._step_began, self._probe = time.monotonic(), torch.empty(0)

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self._step_began = time.monotonic()
        self._probe = sampled(model.parameters())

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._stop.asked or state.global_step >= state.max_steps:
            control.should_save, control.should_training_stop = self._saves, True

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, model: Any = None, **_: Any
    ) -> None:
        if not logs or "loss" not in logs:
            return
        metrics = {name: float(logs[key]) for key, name in NAMES.items() if key in logs}
        before, self._probe = self._probe, sampled(model.parameters())
        changed = float((self._probe != before).float().mean())
        self._write("train", state, {**metrics, "actor/weights_changed_share": changed})
        if not math.isfinite(metrics["train/loss"]) or not math.isfinite(metrics.get("actor/grad_norm", 0.0)):
            raise RunError(
                f"step {state.global_step}: the loss is {metrics['train/loss']:g} and the gradient's norm "
                f"{metrics.get('actor/grad_norm', math.nan):g}; lower the learning rate, or look for broken weights"
            )

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._write("checkpoint", state, {})

    def _write(self, kind: str, state: Any, more: dict[str, Any]) -> None:
        began, self._step_began = self._step_began, time.monotonic()
        seconds = round(self._step_began - began, 4)
        row = {"kind": kind, "step": state.global_step, "of_steps": state.max_steps, "seconds": seconds}
        append_lines(self._file, [row | more])
