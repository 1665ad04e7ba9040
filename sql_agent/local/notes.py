"""What a run in one process writes down: rollouts.jsonl, metrics.jsonl, the trackers' numbers and the audit.

Names and tables are those of `agentgrpo train` (agl_plugin.trainer). The audit has calls, rows, masks and advantages as
they were trained, so `agentgrpo audit verify` can compute them again. Not covered: `replay`, which repeats updates of
verl.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from agl_plugin.audit.facts import REPLACED, SMALL, UNSCORED, Batched, Seen, checkpoint_rows, rollout_rows, update_rows
from agl_plugin.audit.log import AuditLog
from agl_plugin.run.resampling import Places
from agl_plugin.run.statistics import of_groups, of_rollouts
from agl_plugin.run.time_split import Stopwatch
from agl_plugin.run.tracking import tracking_of
from agl_plugin.update.batch import Batch
from agl_plugin.update.rows import Limits
from agl_plugin.update.rules import Updated
from foundation import run_folder
from foundation.errors import RunError
from foundation.files import append_lines
from sql_agent.local.rollouts import Played, rewards_of
from sql_agent.training.job import GrpoPlan

logger = logging.getLogger(__name__)


class Notes:
    """The notes of one run. `verl` is verl's configuration of it."""

    def __init__(self, plan: GrpoPlan, *, verl: Any, audit: AuditLog | None) -> None:
        self._plan, self._audit, self._tracking = plan, audit, tracking_of(verl)
        self._health = plan.trainer.health
        self._watch = Stopwatch()
        self.begin()

    @property
    def weights_are_finite(self) -> bool:
        """Whether the model gives numbers: a checkpoint of others would push out the last good one."""
        return self._health.weights_are_finite

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

    def played(self, played: Sequence[Played], *, step: int, mode: str) -> None:
        append_lines(self._plan.run_dir / run_folder.ROLLOUTS, [episode.row for episode in played])
        for episode in played:
            for kind, start, end in episode.row.get("timeline", []):
                self._watch.add(kind, start, end)
        if self._audit:
            n_updates = max(0, step - 1) if mode == "train" else step
            run_id = self._audit.run_id
            seen = [episode.seen or _seen(episode, n_updates) for episode in played]
            records = {episode.row["rollout_id"]: episode.row for episode in played}
            self._audit.add(lambda: rollout_rows(seen, records, run_id=run_id), step=step)

    def trained(
        self,
        step: int,
        metrics: Mapping[str, Any],
        *,
        played: Sequence[Played],
        places: Places,
        batch: Batch,
        updated: Updated,
    ) -> None:
        """A step, after its update. Raises RunError where health ends the run."""
        seconds = time.monotonic() - self._began_s
        phases = self._watch.phases(self._timers, seconds=seconds)
        stats = statistics_of(played) | of_groups(rewards_of(played).values())
        stats |= {"resampled_groups": places.tried, "replaced_groups": places.replaced}
        figures: dict[str, Any] = {f"rollout/{name}": value for name, value in stats.items()}
        figures |= {**metrics, "training/reward": stats["reward_mean"]}
        figures |= {f"time/{phase}": seconds for phase, seconds in phases.items()}
        figures |= self._health.after_step(step, figures, [episode.row for episode in played])
        if self._audit:
            rollout, run_id = self._plan.config.rollout, self._audit.run_id
            limits = Limits(rollout.max_prompt_tokens, rollout.row_response_tokens)
            batched = Batched(batch.rows, limits, _left_out(played, places, batch))
            self._audit.add(lambda: update_rows(batched, updated, figures, step=step, run_id=run_id), step=step)
        for text in figures.get("warnings", []):
            logger.warning(text)
        self._write("train", step, figures)
        if self._health.stop:
            raise RunError(self._health.stop)

    def validated(self, step: int, played: Sequence[Played]) -> float | None:
        """A validation; its mean reward, None where nothing was scored."""
        stats = statistics_of(played)
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


def statistics_of(played: Sequence[Played]) -> dict[str, float]:
    """Counts and means, under the names of a step's metrics; means are over scored rollouts only."""
    counts = Counter(episode.row["unscored"] for episode in played if episode.row["unscored"])
    rewarded = [(episode.row, episode.reward) for episode in played]
    return of_rollouts(rewarded, n_rollouts=len(played), unscored=counts)


def _left_out(played: Sequence[Played], places: Places, batch: Batch) -> dict[str, str]:
    learned = {rollout for rollout, _ in batch.rows}
    reasons: dict[str, str] = {}
    for episode in played:
        if (rollout := episode.row["rollout_id"]) not in learned:
            group_reason = SMALL if episode.group in places.in_batch else REPLACED
            reasons[rollout] = UNSCORED if episode.reward is None else group_reason
    return reasons


def _seen(episode: Played, n_updates: int) -> Seen:
    rollout = episode.row["rollout_id"]
    attempt = f"{rollout}/a1"
    calls = []
    for n, (turn, (began_s, ended_s)) in enumerate(zip(episode.turns, episode.times, strict=True)):
        facts = {"attempt_id": attempt, "response_id": f"{attempt}/{n}", "weights_version": n_updates}
        calls.append(replace(turn, facts=facts | {"started_s": began_s, "ended_s": ended_s}))
    attempt_row = {"id": attempt, "rollout_id": rollout, "n": 1, "status": episode.row["status"]}
    attempt_row["started_s"] = episode.times[0][0] if episode.times else time.time()
    attempt_row["ended_s"] = episode.times[-1][1] if episode.times else attempt_row["started_s"]
    return Seen(rollout, {}, [attempt_row], calls)
