"""A run's loop on verl's workers, from the first weights to the last checkpoint; `GrpoTrainer._step` is a step.

What it writes down says agl_plugin.notes.
With `async_groups` a step begins with rollouts that are under way since earlier ones (agl_plugin.run.ahead).
Guarantees: the engines change their weights only while no call is under way; no row is left out because others are few;
a run that stops after any checkpoint and goes on makes the same steps, or with `async_groups` asks the same questions.
"""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

from agl_plugin.audit.log import AuditLog
from agl_plugin.audit.stored import StoredRun
from agl_plugin.daemon import GrpoDaemon
from agl_plugin.notes import Metrics, Notes, tracking_of
from agl_plugin.options import TrainerOptions
from agl_plugin.run.ahead import QuestionLine
from agl_plugin.run.between_steps import drain, hold
from agl_plugin.run.kept import Checkpoints
from agl_plugin.run.question_order import QuestionOrder
from agl_plugin.run.workers import Workers
from agl_plugin.update.advantage import add_advantages
from agl_plugin.update.prepare import prepare, result
from agl_plugin.update.rows import Limits
from agl_plugin.update.rules import Updated
from agl_plugin.update.teacher import teacher_log_probs
from foundation import run_folder
from foundation.files import write_text

logger = logging.getLogger(__name__)
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
        self.config, self.workers, self.daemon = config, workers, daemon
        self.health, self.rules = options.health, options.update
        self.train, self.val = train, val
        self.step = 0
        self.n_steps: int = config.trainer.total_training_steps
        n, n_ahead = config.data.train_batch_size, daemon.options.async_groups
        weights = (config.data.get("sampler") or {}).get("weights") or []
        seed = config.data.seed or 0
        self.order = QuestionOrder(train, n=n, seed=seed, weights=weights, curriculum=options.curriculum)
        self.line = QuestionLine(self.order, train, n=n, ahead=n_ahead, n_steps=self.n_steps) if n_ahead else None
        self._n_aborted = 0
        self._late_calls = Counter[str]()  # those in metrics.jsonl
        self.notes = Notes(
            run_dir,
            n_steps=self.n_steps,
            health=self.health,
            tracking=tracking_of(config),
            audit=audit,
            counted=self._new_late_calls,
        )
        daemon.watch = self.notes.watch
        folder = Path(config.trainer.default_local_dir)
        self._checkpoints = Checkpoints(folder, options.keep, resumed=config.trainer.resume_from_path or "")
        self.stored = StoredRun(Path(options.from_store["folder"])) if options.from_store else None
        self._advantage = config.algorithm.adv_estimator.removesuffix("_rollouts")

    def fit(self) -> None:
        """Train until the configured number of steps is done, or it gets no better."""
        trainer, checkpoints = self.config.trainer, self._checkpoints
        self._resume()
        if trainer.val_before_train:
            self._validate()
        if not self.step and self.order.to_probe:
            self._probe()
        while self.step < self.n_steps and not checkpoints.gets_no_better:
            self.step += 1
            self._train()
            if trainer.test_freq > 0 and (self.step == self.n_steps or self.step % trainer.test_freq == 0):
                checkpoints.validated(self.step, self._validate())
            last = self.step == self.n_steps or checkpoints.gets_no_better
            wanted = last or self.step % max(1, trainer.save_freq) == 0 or checkpoints.is_best(self.step)
            if trainer.save_freq > 0 and wanted:
                self._save()

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

    def _step(self) -> tuple[Metrics, Updated]:
        """Rollouts become rows, and the rows an update of the weights."""
        timed = self.notes.timed
        with timed("gen"):
            self._rollouts()
            batch, metrics = self.daemon.batch(self._limits(), by_turn=self.rules.by_turn)
        with timed("adv"):
            add_advantages(batch, self._advantage, self.rules)
            rows: Any = batch[~batch.batch["is_drop_mask"]]  # no prompts over the limit, no rows with nothing to learn
        with timed("old_log_prob"):
            rows = self.workers.log_probs(rows, self.rules)
        if self.rules.teacher:
            with timed("ref"):
                rows.batch["ref_log_prob"] = teacher_log_probs(rows.batch, self.rules.teacher)
        elif self.workers.has_reference:
            with timed("ref"):
                rows = self.workers.reference_log_probs(rows, self.rules)
        prepared = prepare(rows, self.rules, step=self.step, n_ranks=self.workers.n_ranks)
        with timed("update_actor"):
            update_metrics, updated = result(prepared, self.workers.update(prepared.data))
        return metrics | update_metrics | {"perf/total_num_tokens": int(rows.batch["attention_mask"].sum())}, updated

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
        with daemon.watch.measure("weight_sync"):
            workers.send_weights(step=weights)
        daemon.gate.open(weights=weights)
        daemon.collect(questions, workers.addresses, is_train=is_train, n_groups=n_groups)
        with daemon.watch.measure("weight_sync"):
            if is_closed := bool(daemon.playing_on.pending):
                hold(daemon.gate, daemon.llm_proxy.is_running, limit_s=daemon.options.rollout_timeout_s)
            if not daemon.llm_proxy.is_running():
                daemon.gate.forget()  # a killed proxy counts no more; the next step starts another
            self._n_aborted += drain(daemon.gate, workers.abort, held=is_closed)
            workers.sleep()

    def _train(self) -> None:
        """A step, written down. Raises RunError where the run's health says stop."""
        daemon, notes = self.daemon, self.notes
        daemon.step, daemon.spare_questions = self.step, self.order.spare(self.step)
        notes.begin()
        with notes.timed("step"):
            metrics, updated = self._step()
        metrics |= self.order.learned(self.step, daemon.outcome.asked_groups)
        texts = daemon.gateway_watch.warnings
        if self.line and self.line.dropped:
            names = ", ".join(self.line.dropped)
            texts = [*texts, f"rollouts in flight at the checkpoint are dropped, and asked again: {names}"]
            self.line.dropped = []
        notes.trained(
            self.step,
            metrics,
            counts=daemon.stats,
            rows=daemon.rollouts.rows,
            batched=daemon.batched,
            updated=updated,
            warnings=texts,
        )

    def _validate(self) -> float:
        """The mean reward of the validation questions."""
        self.daemon.step = self.step
        self.notes.begin()
        self._collect(self.val, is_train=False, weights=self.step)
        metrics = self.daemon.validation()
        self.notes.write("val", self.step, metrics)
        return metrics["val/reward_mean"]

    def _probe(self) -> None:
        """Play questions with the first weights, from which nothing is learned but how hard they are."""
        self.daemon.step, self.daemon.spare_questions = self.step, None
        self.notes.begin()
        self._collect([self.train[place] for place in self.order.to_probe], is_train=True, weights=self.step)
        self.notes.write("probe", self.step, self.order.probed(self.daemon.outcome.asked_groups))

    def _save(self) -> None:
        """A checkpoint, unless the model gives no finite numbers: it would push out the last good one."""
        if not self.health.weights_are_finite:
            logger.warning("step %d: no checkpoint, because the model gives no finite numbers", self.step)
            return
        step, folder = self.step, run_folder.step_folder(self._checkpoints.folder, self.step)
        self.notes.begin()
        self.workers.save(str(folder / "actor"), step=step)
        self.order.save(folder)
        self.health.save(folder)
        if self.line:
            self.line.save(folder, self.daemon.playing_on)
        write_text(folder.parent / run_folder.NOTE, str(step))  # now it is whole
        self._checkpoints.saved()
        self.notes.saved(folder, step=step)

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

    def _new_late_calls(self) -> dict[str, float]:
        """Calls after a step's end that no line has yet."""
        late_calls = Counter(aborted=self._n_aborted, refused=self.daemon.gate.refused)
        new, self._late_calls = late_calls - self._late_calls, late_calls
        return {f"rollout/late_calls/{what}": n for what, n in new.items()}
