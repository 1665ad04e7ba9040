"""What a run writes down as it goes, whatever its back end: metrics.jsonl, the trackers' numbers, health and the audit.

Each training step, validation, probe and checkpoint appends one line to metrics.jsonl: {"kind": "train"|"val"|"probe"|
"checkpoint", "step": n, "of_steps": n, "seconds": s, ...}, a step's with the update's metrics, counts of its rollouts
(rollout/...), where the time went (timing_s/... as measured, time/... one phase for each moment) and health
(health/..., new problems as texts in `warnings`). The trackers get the same numbers. A run whose health says stop ends
after the line of that step; checkpoints made before stay.
"""

from __future__ import annotations

import atexit
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from verl.utils.tracking import Tracking

from agl_plugin.audit.facts import Batched, checkpoint_rows, update_rows
from agl_plugin.audit.log import AuditLog
from agl_plugin.outcome import Outcome
from agl_plugin.run.health import Health
from agl_plugin.run.time_split import Stopwatch
from agl_plugin.update.rules import Updated
from foundation import run_folder
from foundation.errors import RunError
from foundation.files import append_lines

logger = logging.getLogger(__name__)
Metrics = dict[str, Any]


def tracking_of(config: Any) -> Tracking:
    """The trackers of a run, which end before the process does; `config` is verl's, resolved.

    Left to themselves they end when they are collected, which may be after wandb's own end: that waits for ever.
    """
    trainer, tree = config.trainer, OmegaConf.to_container(config, resolve=True)
    tracking = Tracking(trainer.project_name, trainer.experiment_name, list(trainer.logger), config=tree)
    atexit.register(tracking.finish)
    return tracking


class Notes:
    """The notes of a run of `n_steps`. `counted` gives what else each line is to have."""

    def __init__(
        self,
        run_dir: Path,
        *,
        n_steps: int,
        health: Health,
        tracking: Tracking,
        audit: AuditLog | None,
        counted: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._file, self._n_steps, self._counted = run_dir / run_folder.METRICS, n_steps, counted
        self.health, self._tracking, self._audit = health, tracking, audit
        self.watch, self._timers = Stopwatch(), dict[str, float]()
        self.begin()

    def begin(self) -> None:
        """What is timed from now on is the next line's."""
        self.watch.clear()
        self._timers.clear()
        self._began_s = time.monotonic()

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        began_s = time.monotonic()
        with self.watch.measure(name):
            yield
        self._timers[name] = time.monotonic() - began_s

    def played(self, outcome: Outcome, *, step: int) -> None:
        """Rollouts, for rollouts.jsonl and the audit."""
        outcome.write_down(self._audit, step=step)
        self.watch.played(outcome.rollouts.rows)

    def trained(
        self,
        step: int,
        metrics: Metrics,
        *,
        counts: Mapping[str, float],
        rows: Sequence[Mapping[str, Any]],
        batched: Batched | None,
        updated: Updated,
        warnings: Sequence[str] = (),
    ) -> None:
        """A step, after its update; `rows` are the records of its rollouts. Raises RunError where health ends the
        run."""
        phases = self.watch.phases(self._timers, seconds=time.monotonic() - self._began_s)
        for prefix, figures in (("timing_s", self._timers), ("time", phases), ("rollout", counts)):
            metrics |= {f"{prefix}/{name}": value for name, value in figures.items()}
        metrics |= self.health.after_step(step, metrics, rows)
        if warnings:
            metrics.setdefault("warnings", []).extend(f"step {step}: {text}" for text in warnings)
        if self._audit and batched:
            run_id = self._audit.run_id
            self._audit.add(lambda: update_rows(batched, updated, metrics, step=step, run_id=run_id), step=step)
        for text in metrics.get("warnings", []):
            logger.warning(text)
        self.write("train", step, metrics | (self._audit.metrics() if self._audit else {}))
        if self.health.stop:
            raise RunError(self.health.stop)

    def saved(self, folder: Path, *, step: int) -> None:
        """A checkpoint, which is whole."""
        if self._audit:
            place = f"{run_folder.CHECKPOINTS}/{folder.name}"
            self._audit.add(lambda: checkpoint_rows(step, place), step=step)
        self.write("checkpoint", step, {})

    def write(self, kind: str, step: int, metrics: Metrics) -> None:
        """A line, and the same for the trackers."""
        began_s, self._began_s = self._began_s, time.monotonic()
        row = {"kind": kind, "step": step, "of_steps": self._n_steps, "seconds": round(self._began_s - began_s, 4)}
        metrics = {**metrics, **self._counted()}
        append_lines(self._file, [row | metrics])
        if numbers := {name: value for name, value in metrics.items() if name != "warnings"}:
            self._tracking.log(numbers, step=step)
