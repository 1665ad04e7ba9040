"""A run's loop on verl's workers, from the first weights to the last checkpoint; `GrpoTrainer._step` is a step.

Each training step, validation and checkpoint appends one line to metrics.jsonl: {"kind": "train"|"val"|"checkpoint",
"step": n, "of_steps": n, "seconds": s, ...} with the workers' metrics, the daemon's counts (rollout/...), where the
time went (timing_s/... as measured, time/... one phase for each moment) and health (health/..., new problems as texts
in `warnings`). The trackers get the same numbers. A run whose health says stop ends after the line of that step;
checkpoints made before stay.
With `async_groups` a step begins with rollouts that are under way since earlier ones (agl_plugin.run.ahead).
Guarantees: the engines change their weights only while no call is under way; no row is left out because others are few;
a run that stops after any checkpoint and goes on makes the same steps, or with `async_groups` asks the same questions.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agl_plugin.audit.facts import checkpoint_rows, update_rows
from agl_plugin.audit.log import AuditLog
from agl_plugin.audit.stored import StoredRun
from agl_plugin.daemon import GrpoDaemon
from agl_plugin.options import TrainerOptions
from agl_plugin.run.ahead import QuestionLine
from agl_plugin.run.between_steps import drain, hold
from agl_plugin.run.kept import Checkpoints
from agl_plugin.run.question_order import QuestionOrder
from agl_plugin.run.time_split import Stopwatch
from agl_plugin.run.tracking import tracking_of
from agl_plugin.run.workers import Workers
from agl_plugin.update.advantage import add_advantages
from agl_plugin.update.prepare import prepare, result
from agl_plugin.update.rows import Limits
from agl_plugin.update.rules import Updated
from agl_plugin.update.teacher import teacher_log_probs
from foundation import run_folder
from foundation.errors import RunError
from foundation.files import append_lines, write_text

logger = logging.getLogger(__name__)
Metrics = dict[str, Any]
Questions = list[dict[str, Any]]


class GrpoTrainer:
    """The trainer of one run. `config` is verl's, resolved; `run_dir` receives metrics.jsonl, and `audit` what became
    of each row."""

    def __init__(
        self,
        config: Any,
        *,
        workers: Workers,
        daemon: GrpoDaemon,
        train: Questions,
        val: Questions,
        run_dir: Path,
        options: TrainerOptions,
        audit: AuditLog | None = None,
    ) -> None:
        self.config, self.workers, self.daemon, self.audit = config, workers, daemon, audit
        self.run_dir, self.health, self.rules = run_dir, options.health, options.update
        self.train, self.val = train, val
        self.step = 0
        self.n_steps: int = config.trainer.total_training_steps
        n, n_ahead = config.data.train_batch_size, daemon.options.async_groups
        weights = (config.data.get("sampler") or {}).get("weights") or []
        seed = config.data.seed or 0
        self.order = QuestionOrder(train, n=n, seed=seed, weights=weights, curriculum=options.curriculum)
        self.line = QuestionLine(self.order, train, n=n, ahead=n_ahead, n_steps=self.n_steps) if n_ahead else None
        self.watch = daemon.watch = Stopwatch()
        self._timers: dict[str, float] = {}
        self._n_aborted = 0
        self._late_calls = Counter[str]()  # those in metrics.jsonl
        self._updated: Updated | None = None
        folder = Path(config.trainer.default_local_dir)
        self._checkpoints = Checkpoints(folder, options.keep, resumed=config.trainer.resume_from_path or "")
        self.stored = StoredRun(Path(options.from_store["folder"])) if options.from_store else None
        self._advantage = config.algorithm.adv_estimator.removesuffix("_rollouts")

    def fit(self) -> None:
        """Train until the configured number of steps is done, or it gets no better."""
        trainer, checkpoints = self.config.trainer, self._checkpoints
        tracking = tracking_of(self.config)
        self._resume()
        if trainer.val_before_train:
            tracking.log(self._validate(), step=self.step)
        if not self.step and self.order.to_probe:
            tracking.log(self._probe(), step=self.step)
        while self.step < self.n_steps and not checkpoints.gets_no_better:
            self.step += 1
            metrics = self._train()
            if trainer.test_freq > 0 and (self.step == self.n_steps or self.step % trainer.test_freq == 0):
                validation = self._validate()
                checkpoints.validated(self.step, validation["val/reward_mean"])
                metrics |= validation
            last = self.step == self.n_steps or checkpoints.gets_no_better
            wanted = last or self.step % max(1, trainer.save_freq) == 0 or checkpoints.is_best(self.step)
            if trainer.save_freq > 0 and wanted:
                self._save()
            tracking.log(metrics, step=self.step)

    def _rollouts(self) -> None:
        """The daemon gets the rollouts of this step: those that a run stored, or played ones."""
        step, order, daemon = self.step, self.order, self.daemon
        if self.stored:
            return daemon.take(self.stored.rollouts(order.of_step(step), use=order.use(step), step=step))
        if self.line:
            questions = self.line.of_step(step, n_open=len(daemon.playing_on.groups))
        else:
            questions = [self.train[place] for place in order.of_step(step)]
        self._collect(questions, is_train=True, weights=step - 1)

    def _step(self) -> Metrics:
        """Rollouts become rows, and the rows an update of the weights."""
        with self._timed("gen"):
            self._rollouts()
            batch, metrics = self.daemon.batch(self._limits(), by_turn=self.rules.by_turn)
        with self._timed("adv"):
            add_advantages(batch, self._advantage, self.rules)
            rows: Any = batch[~batch.batch["is_drop_mask"]]  # no prompts over the limit, no rows with nothing to learn
        with self._timed("old_log_prob"):
            rows = self.workers.log_probs(rows, self.rules)
        if self.rules.teacher:
            with self._timed("ref"):
                rows.batch["ref_log_prob"] = teacher_log_probs(rows.batch, self.rules.teacher)
        elif self.workers.has_reference:
            with self._timed("ref"):
                rows = self.workers.reference_log_probs(rows, self.rules)
        prepared = prepare(rows, self.rules, step=self.step, n_ranks=self.workers.n_ranks)
        with self._timed("update_actor"):
            update_metrics, self._updated = result(prepared, self.workers.update(prepared.data))
        return metrics | update_metrics | {"perf/total_num_tokens": int(rows.batch["attention_mask"].sum())}

    def _limits(self) -> Limits:
        rows, data = self.config.agentlightning.trace_aggregator, self.config.data
        if self.daemon.merge:
            return Limits(rows.trajectory_max_prompt_length, rows.trajectory_max_response_length)
        return Limits(data.max_prompt_length, data.max_response_length)

    def _collect(self, questions: Questions, *, is_train: bool, weights: int) -> None:
        """Play the questions with the newest weights, which have seen so many updates.

        Then the engines are left by all calls, forget what they cached, and sleep. Calls of rollouts that play on wait.
        """
        daemon, workers = self.daemon, self.workers
        n_groups = self.config.data.train_batch_size if is_train and self.line else 0
        with self.watch.measure("weight_sync"):
            workers.send_weights(step=weights)
        daemon.gate.open(weights=weights)
        daemon.collect(questions, workers.addresses, is_train=is_train, n_groups=n_groups)
        with self.watch.measure("weight_sync"):
            if is_closed := bool(daemon.playing_on.pending):
                hold(daemon.gate, daemon.llm_proxy.is_running, limit_s=daemon.options.rollout_timeout_s)
            if not daemon.llm_proxy.is_running():
                daemon.gate.forget()  # a killed proxy counts no more; the next step starts another
            self._n_aborted += drain(daemon.gate, workers.abort, held=is_closed)
            workers.sleep()

    def _train(self) -> Metrics:
        """A step, logged. Raises RunError where the run's health says stop."""
        self._updated = None
        self.watch.clear()
        self._timers.clear()
        self.daemon.step, self.daemon.spare_questions = self.step, self.order.spare(self.step)
        with self._logged("train") as metrics:
            metrics |= self._measured_step()
        for text in metrics.pop("warnings", []):
            logger.warning(text)
        if self.health.stop:
            raise RunError(self.health.stop)
        return metrics

    def _measured_step(self) -> Metrics:
        """A step with all that is told of it."""
        daemon = self.daemon
        with self._timed("step"):
            metrics = self._step()
        phases = self.watch.phases(self._timers, seconds=self._timers["step"])
        metrics |= {f"timing_s/{name}": seconds for name, seconds in self._timers.items()}
        metrics |= {f"time/{phase}": seconds for phase, seconds in phases.items()}
        metrics |= {f"rollout/{k}": v for k, v in daemon.stats.items()}
        metrics |= self.order.learned(self.step, daemon.outcome.asked_groups)
        metrics |= self.health.after_step(self.step, metrics, daemon.rollouts.rows)
        texts = daemon.gateway_watch.warnings
        if self.line and self.line.dropped:
            names = ", ".join(self.line.dropped)
            texts = [*texts, f"rollouts in flight at the checkpoint are dropped, and asked again: {names}"]
            self.line.dropped = []
        if texts:
            metrics.setdefault("warnings", []).extend(f"step {self.step}: {text}" for text in texts)
        return metrics | self._audit_step(metrics)

    def _audit_step(self, metrics: Metrics) -> Metrics:
        """Keep what became of the step's rows; the seconds that the audit takes."""
        step, batched, updated = self.step, self.daemon.batched, self._updated
        if self.audit is None or batched is None:
            return {}
        run_id = self.audit.run_id
        self.audit.add(lambda: update_rows(batched, updated, metrics, step=step, run_id=run_id), step=step)
        return self.audit.metrics()

    def _validate(self) -> Metrics:
        self.daemon.step = self.step
        with self._logged("val") as metrics:
            self._collect(self.val, is_train=False, weights=self.step)
            metrics |= self.daemon.validation()
        return metrics

    def _probe(self) -> Metrics:
        """Play questions with the first weights, from which nothing is learned but how hard they are."""
        self.daemon.step, self.daemon.spare_questions = self.step, None
        with self._logged("probe") as metrics:
            self._collect([self.train[place] for place in self.order.to_probe], is_train=True, weights=self.step)
            metrics |= self.order.probed(self.daemon.outcome.asked_groups)
        return metrics

    def _save(self) -> None:
        """A checkpoint, unless the model gives no finite numbers: it would push out the last good one."""
        if not self.health.weights_are_finite:
            logger.warning("step %d: no checkpoint, because the model gives no finite numbers", self.step)
            return
        step, folder = self.step, run_folder.step_folder(self._checkpoints.folder, self.step)
        with self._logged("checkpoint"):
            self.workers.save(str(folder / "actor"), step=step)
            self.order.save(folder)
            self.health.save(folder)
            if self.line:
                self.line.save(folder, self.daemon.playing_on)
            write_text(folder.parent / run_folder.NOTE, str(step))  # now it is whole
            self._checkpoints.saved()
            if self.audit:
                place = f"{run_folder.CHECKPOINTS}/{folder.name}"
                self.audit.add(lambda: checkpoint_rows(step, place), step=step)

    def _resume(self) -> None:
        if self.config.trainer.resume_mode == "disable":
            return
        folder = Path(self.config.trainer.resume_from_path)
        self.step = run_folder.step_number(folder)
        self.workers.load(str(folder / "actor"))
        self.order.load(folder)
        self.health.load(folder)
        if self.line:
            self.line.load(folder, step=self.step)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self._timers[name] = time.monotonic() - started

    @contextmanager
    def _logged(self, kind: str) -> Iterator[Metrics]:
        """The metrics that the block fills in, as a line of metrics.jsonl; none where it raises."""
        started, metrics = time.monotonic(), Metrics()
        yield metrics
        late_calls = Counter(aborted=self._n_aborted, refused=self.daemon.gate.refused)  # after a step's end
        metrics |= {f"rollout/late_calls/{what}": n for what, n in (late_calls - self._late_calls).items()}
        self._late_calls = late_calls
        row = {"kind": kind, "step": self.step, "of_steps": self.n_steps, "seconds": time.monotonic() - started}
        append_lines(self.run_dir / run_folder.METRICS, [row | metrics])
