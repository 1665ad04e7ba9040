"""agent-lightning's VERL trainer, writing metrics.jsonl and losing no rows.

Each training step and each validation appends one line: {"kind": "train"|"val", "step": n, ...} with verl's metrics,
the daemon's counts (rollout/...), where the time went (time/..., see time_split.py), health (health/..., new problems
as texts in `warnings`) and seconds. The trackers get the same numbers. A run whose health says stop ends after the line
of that step; checkpoints made before stay.
"""

from __future__ import annotations

import functools
import logging
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from agentlightning.verl import trainer as upstream
from agentlightning.verl.trainer import AgentLightningTrainer
from ray.exceptions import RayTaskError
from verl.trainer.ppo.core_algos import agg_loss

from agl_plugin.audit.facts import checkpoint_rows, update_rows
from agl_plugin.audit.log import AuditLog
from agl_plugin.daemon import GrpoDaemon
from agl_plugin.options import TrainerOptions
from agl_plugin.run.between_steps import abort_all, drain
from agl_plugin.run.question_order import files_of
from agl_plugin.run.resampling import SpareQuestions
from agl_plugin.run.time_split import Stopwatch
from agl_plugin.update import advantage
from agl_plugin.update.prepare import prepared
from agl_plugin.update.rules import Updated
from foundation import run_folder
from foundation.errors import RunError
from foundation.files import append_lines

logger = logging.getLogger(__name__)


def entropy_per_token(loss_mat: torch.Tensor, loss_mask: torch.Tensor, loss_agg_mode: str) -> torch.Tensor:
    """The step's entropy as health reads it, in nats per token: upstream would aggregate it as the loss is."""
    return agg_loss(loss_mat=loss_mat, loss_mask=loss_mask, loss_agg_mode="token-mean")


upstream.agg_loss = entropy_per_token


class GrpoTrainer(AgentLightningTrainer):
    """The trainer of one run. `run_dir` receives metrics.jsonl, and `audit` what became of each row."""

    agent_mode_daemon: GrpoDaemon
    global_steps: int
    total_training_steps: int
    train_dataset: Any

    def __init__(self, *, run_dir: Path, options: TrainerOptions, audit: AuditLog | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.audit = audit
        self._updated: Updated | None = None
        self.run_dir = run_dir
        self.health = options.health
        self.update = options.update
        self.watch = Stopwatch()
        self._n_aborted = self._n_updates = 0
        self._told = Counter[str]()
        names = list(map(advantage.name_of, advantage.ESTIMATES))
        assert self.config.algorithm.adv_estimator in names, self.config.algorithm.adv_estimator

    def init_workers(self) -> None:
        """Start the workers, prepare each update, and let the trainer keep all rows and their order.

        agent-lightning drops what is left over below ppo_mini_batch_size, up to a whole step in a small run, and sorts
        the rows by length; here the plan of an update does what these are for. The workers already hold their own copy
        of the configuration.
        """
        super().init_workers()
        manager = self.async_rollout_manager
        for name, around in {"wake_up": self._wake_up, "sleep": self._sleep}.items():
            work = functools.partial(around, getattr(manager, name))
            setattr(manager, name, self.watch.measured("weight_sync", work))
        workers = self.actor_rollout_wg
        workers.update_actor = prepared(
            workers.update_actor,
            self.update,
            step=lambda: self.global_steps,
            n_ranks=workers.world_size,
            note=self._note_update,
        )
        self.config.actor_rollout_ref.actor.ppo_mini_batch_size = 1
        self.config.trainer.balance_batch = False

    def _note_update(self, updated: Updated) -> None:
        self._updated = updated

    def _audit_step(self, metrics: dict[str, Any]) -> dict[str, float]:
        """Keep what became of the step's rows; the seconds that the audit takes."""
        step, batched, updated = self.global_steps, self.agent_mode_daemon.batched, self._updated
        if self.audit is None or batched is None:
            return {}
        run_id = self.audit.run_id
        self.audit.add(lambda: update_rows(batched, updated, metrics, step=step, run_id=run_id), step=step)
        return self.audit.metrics()

    def _wake_up(self, wake_up: Callable[[], None]) -> None:
        """The engines get weights, then calls."""
        wake_up()
        self.agent_mode_daemon.gate.open(weights=self._n_updates)

    def _sleep(self, sleep: Callable[[], None]) -> None:
        """The engines are left by all calls, forget what they cached, and sleep. Raises RunError where one does not."""
        servers = self.async_rollout_manager.server_handles
        if not self.agent_mode_daemon.llm_proxy.is_running():
            self.agent_mode_daemon.gate.forget()  # a killed proxy counts no more; the next step starts another
        self._n_aborted += drain(self.agent_mode_daemon.gate, lambda: abort_all(servers))
        try:
            sleep()
        except RayTaskError as exc:
            raise RunError(
                f"step {self.global_steps}: the model server did not go to sleep: {exc.cause}. The step is lost; "
                "continue with --resume_checkpoint latest"
            ) from exc

    @functools.cached_property
    def _files(self) -> tuple[list[float], list[int]]:
        return files_of(self.train_dataset, self.config.data)

    def _late_calls(self) -> dict[str, int]:
        """Calls after a step's end that were aborted or refused since the last look, where there were any."""
        so_far = Counter(aborted=self._n_aborted, refused=self.agent_mode_daemon.gate.refused)
        fresh, self._told = so_far - self._told, so_far
        return {f"rollout/late_calls/{what}": n for what, n in fresh.items()}

    def _log(self, kind: str, metrics: dict[str, Any], *, seconds: float) -> None:
        row = {"kind": kind, "step": self.global_steps, "of_steps": self.total_training_steps, "seconds": seconds}
        append_lines(self.run_dir / run_folder.METRICS, [{**row, **metrics}])

    def _timed(self, kind: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        started = time.monotonic()
        metrics = {**work(), **self._late_calls()}
        self._log(kind, metrics, seconds=time.monotonic() - started)
        return metrics

    def _train_step(self, batch_dict: dict[str, Any]) -> dict[str, Any]:
        daemon = self.agent_mode_daemon
        daemon.step, daemon.watch, self._n_updates = self.global_steps, self.watch, self.global_steps - 1
        self.watch.clear()
        self._updated = None
        weights, files = self._files
        daemon.spare_questions = SpareQuestions(
            self.train_dataset,
            seed=self.config.data.seed or 0,
            step=self.global_steps,
            weights=weights,
            files=files,
        )
        train_step = super()._train_step

        def work() -> dict[str, Any]:
            started = time.monotonic()
            metrics = train_step(batch_dict)
            timers = {k.removeprefix("timing_s/"): v for k, v in metrics.items() if k.startswith("timing_s/")}
            phases = self.watch.phases(timers, seconds=time.monotonic() - started)
            metrics |= {f"time/{phase}": seconds for phase, seconds in phases.items()}
            metrics |= {f"rollout/{k}": v for k, v in daemon.stats.items()}
            metrics |= self.health.after_step(self.global_steps, metrics, daemon.step_rows)
            return {**metrics, **self._audit_step(metrics)}

        metrics = self._timed("train", work)
        for text in metrics.pop("warnings", []):
            logger.warning(text)
        if self.health.stop:
            raise RunError(self.health.stop)
        return metrics

    def _validate(self) -> dict[str, Any]:
        self.agent_mode_daemon.step = self._n_updates = self.global_steps
        return self._timed("val", super()._validate)

    def _save_checkpoint(self) -> None:
        """verl's checkpoint, unless the model gives no finite numbers: it would push out the last good one."""
        if not self.health.weights_are_finite:
            logger.warning("step %d: no checkpoint, because the model gives no finite numbers", self.global_steps)
            return
        save = super()._save_checkpoint

        def work() -> dict[str, Any]:
            save()
            if self.audit:
                step, place = self.global_steps, f"{run_folder.CHECKPOINTS}/global_step_{self.global_steps}"
                self.audit.add(lambda: checkpoint_rows(step, place), step=step)
            return {}

        self._timed("checkpoint", work)
