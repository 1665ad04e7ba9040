"""What a run in one process writes down: rollouts.jsonl, metrics.jsonl, the trackers' numbers and the audit.

Names and tables are those of `agentgrpo train` (agl_plugin.trainer). The audit has calls, rows, masks and advantages as
they were trained, so `agentgrpo audit verify` can compute them again. Not covered: `replay`, which repeats updates of
verl.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agl_plugin.audit.facts import Batched, checkpoint_rows, update_rows
from agl_plugin.audit.log import AuditLog
from agl_plugin.outcome import Outcome
from agl_plugin.run.resampling import Places
from agl_plugin.run.time_split import Stopwatch
from agl_plugin.run.tracking import tracking_of
from agl_plugin.update.rules import Updated
from foundation import run_folder
from foundation.errors import RunError
from foundation.files import append_lines
from sql_agent.training.job import GrpoPlan

logger = logging.getLogger(__name__)


class Notes:
    """The notes of one run. `verl` is verl's configuration of it."""

    def __init__(self, plan: GrpoPlan, *, verl: Any, audit: AuditLog | None) -> None:
        self._plan, self._audit, self._tracking = plan, audit, tracking_of(verl)
        self._health = plan.trainer.health
        if plan.config.trainer.resume:
            self._health.load(Path(plan.config.trainer.resume))
        self._watch = Stopwatch()
        self.begin()

    @property
    def weights_are_finite(self) -> bool:
        """Whether the model gives numbers: a checkpoint of others would push out the last good one."""
        return self._health.weights_are_finite

    def save(self, folder: Path) -> None:
        """Keep in a checkpoint's folder what a run that goes on from it has to know."""
        self._health.save(folder)

    def begin(self) -> None:
        self._watch.clear()
        self._timers: dict[str, float] = {}
        self._began_s = time.monotonic()

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        with self._watch.measure(name):
            yield
        self._timers[name] = time.monotonic() - began

    def played(self, outcome: Outcome, *, step: int) -> None:
        outcome.write_down(self._audit, step=step)
        for row in outcome.rollouts.rows:
            for kind, start, end in row.get("timeline", []):
                self._watch.add(kind, start, end)

    def trained(
        self,
        step: int,
        metrics: Mapping[str, Any],
        *,
        outcome: Outcome,
        places: Places,
        batched: Batched,
        updated: Updated,
    ) -> None:
        """A step, after its update. Raises RunError where health ends the run."""
        seconds = time.monotonic() - self._began_s
        phases = self._watch.phases(self._timers, seconds=seconds)
        stats = outcome.counts_of_step(places)
        figures: dict[str, Any] = {f"rollout/{name}": value for name, value in stats.items()}
        figures |= {**metrics, "training/reward": stats["reward_mean"]}
        figures |= {f"time/{phase}": seconds for phase, seconds in phases.items()}
        figures |= self._health.after_step(step, figures, outcome.rollouts.rows)
        if self._audit:
            run_id = self._audit.run_id
            self._audit.add(lambda: update_rows(batched, updated, figures, step=step, run_id=run_id), step=step)
        for text in figures.get("warnings", []):
            logger.warning(text)
        self._write("train", step, figures)
        if self._health.stop:
            raise RunError(self._health.stop)

    def validated(self, step: int, outcome: Outcome) -> float | None:
        """A validation; its mean reward, None where nothing was scored."""
        stats = outcome.counts
        self._write("val", step, {f"val/{name}": value for name, value in stats.items()})
        return stats.get("reward_mean")

    def probed(self, figures: Mapping[str, float]) -> None:
        self._write("probe", 0, figures)

    def saved(self, step: int) -> None:
        if self._audit:
            place = f"{run_folder.CHECKPOINTS}/global_step_{step}"
            self._audit.add(lambda: checkpoint_rows(step, place), step=step)
        self._write("checkpoint", step, {})

    def _write(self, kind: str, step: int, figures: Mapping[str, Any]) -> None:
        now = time.monotonic()
        row = {"kind": kind, "step": step, "of_steps": self._plan.steps, "seconds": round(now - self._began_s, 4)}
        append_lines(self._plan.run_dir / run_folder.METRICS, [row | dict(figures)])
        self._tracking.log({name: value for name, value in figures.items() if name != "warnings"}, step=step)
        self._began_s = now
