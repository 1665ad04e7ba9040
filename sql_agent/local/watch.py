"""What TRL's trainer tells while a run in one process goes on, and how it is stopped.

Guarantees: one line of metrics.jsonl per optimizer step, validation and checkpoint, under the names of
train_sql_agent.py; SIGTERM or Ctrl-C lets the step end, and saves it where checkpoints are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import TrainerCallback

from sql_agent.config import TrainConfig
from sql_agent.local.step import Step
from sql_agent.records import Question
from sql_agent.tuning.watch import Stop, probe

# TRL's names -> those of metrics.jsonl.
NAMES = {
    "loss": "actor/pg_loss",
    "grad_norm": "actor/grad_norm",
    "learning_rate": "actor/lr",
    "entropy": "actor/entropy_loss",
    "kl": "actor/kl_to_start",
    "clip_ratio/region_mean": "actor/pg_clipfrac",
}


class Watch(TrainerCallback):
    """Validates and writes what happens down, and ends the run when it is asked to."""

    def __init__(self, step: Step, stop: Stop, config: TrainConfig, val: Sequence[Question]) -> None:
        self._step, self._stop, self._trainer, self._val = step, stop, config.trainer, val
        self._probe = torch.empty(0)

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self._probe = probe(model)
        if self._trainer.validate_first and not state.global_step:
            self._step.validate(model, self._val, step=0)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._stop.asked or state.global_step >= state.max_steps:
            control.should_save, control.should_training_stop = self._trainer.save_every > 0, True

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, model: Any = None, **_: Any
    ) -> None:
        if not logs or "loss" not in logs:
            return
        now = probe(model)
        found = {name: float(logs[key]) for key, name in NAMES.items() if key in logs}
        found["actor/weights_changed_share"] = float((now != self._probe).float().mean())
        self._probe = now
        self._step.trained(model, state.global_step, found)
        every, last = self._trainer.validate_every, state.global_step >= state.max_steps
        if every > 0 and (state.global_step % every == 0 or last):
            self._step.validate(model, self._val, step=state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._step.saved(state.global_step)
