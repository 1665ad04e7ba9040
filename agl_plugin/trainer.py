"""agent-lightning's VERL trainer, writing metrics.jsonl and losing no rows.

Each training step and each validation appends one line: {"kind": "train"|"val", "step": n, ...} with verl's metrics,
the daemon's counts (rollout/...) and seconds. What verl logs to its trackers stays as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentlightning.verl.trainer import AgentLightningTrainer

from agl_plugin import advantage, run_folder
from agl_plugin.daemon import GrpoDaemon


class GrpoTrainer(AgentLightningTrainer):
    """The trainer of one run. `run_dir` receives metrics.jsonl."""

    agent_mode_daemon: GrpoDaemon
    global_steps: int
    total_training_steps: int

    def __init__(self, *, run_dir: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.run_dir = run_dir

        assert self.config.algorithm.adv_estimator == advantage.NAME, self.config.algorithm.adv_estimator

    def init_workers(self) -> None:
        """Start the workers, then let the trainer keep all rows that divide over the ranks.

        agent-lightning drops what is left over below ppo_mini_batch_size, up to a whole step in a small run. The
        workers already hold their own copy of the configuration; their last mini batch may be smaller.
        """
        super().init_workers()
        self.config.actor_rollout_ref.actor.ppo_mini_batch_size = self.actor_rollout_wg.world_size

    def _log(self, kind: str, metrics: dict[str, Any], *, seconds: float) -> None:
        row = {"kind": kind, "step": self.global_steps, "of_steps": self.total_training_steps, "seconds": seconds}
        run_folder.append_lines(self.run_dir / run_folder.METRICS, [{**row, **metrics}])

    def _timed(self, kind: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        started = time.monotonic()
        metrics = work()
        self._log(kind, metrics, seconds=time.monotonic() - started)
        return metrics

    def _train_step(self, batch_dict: dict[str, Any]) -> dict[str, Any]:
        self.agent_mode_daemon.step = self.global_steps
        train_step = super()._train_step

        def work() -> dict[str, Any]:
            metrics = train_step(batch_dict)
            return {**metrics, **{f"rollout/{k}": v for k, v in self.agent_mode_daemon.stats.items()}}

        return self._timed("train", work)

    def _validate(self) -> dict[str, Any]:
        self.agent_mode_daemon.step = self.global_steps
        return self._timed("val", super()._validate)

    def _save_checkpoint(self) -> None:
        save = super()._save_checkpoint

        def work() -> dict[str, Any]:
            save()
            return {}

        self._timed("checkpoint", work)
