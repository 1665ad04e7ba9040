"""The audit of a run in one process: the same tables as those of train_sql_agent.py, without a store to ask.

Guarantees: calls, rows, masks and advantages are those that were trained, so `python -m sql_agent.audit verify` can
compute them again. Not covered: `replay`, which repeats updates of verl.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agl_plugin.audit.facts import SMALL, UNSCORED, Batched, Call, Seen, checkpoint_rows, rollout_rows, update_rows
from agl_plugin.audit.log import AuditLog
from agl_plugin.update.fingerprint import fingerprint
from agl_plugin.update.rows import Limits, Row
from agl_plugin.update.rules import Updated, UpdatedRow
from foundation import run_folder
from foundation.versions import versions
from sql_agent.config import TrainConfig
from sql_agent.local.rollouts import Played
from sql_agent.training.verl_config import update_rules, verl_overrides

Trained = Sequence[tuple[str, Row, float]]  # rollout, row, advantage


def settings_of(config: TrainConfig, *, model: Path, run_dir: Path, steps: int) -> dict[str, Any]:
    """What the rows of a run follow from, in the words of the audit."""
    verl = verl_overrides(config, model_path=str(model), run_dir=run_dir, total_steps=steps)
    rules = dataclasses.asdict(update_rules(config))
    return {"verl": verl, "rules": rules, "versions": versions(), "trainer": "trl"}


class LocalAudit:
    """Adds a step's facts to `log`; weights are looked at when a step begins and ends."""

    def __init__(self, log: AuditLog, *, limits: Limits, every_row_moves: bool) -> None:
        self._log, self._limits, self._every_row_moves = log, limits, every_row_moves
        self._batched = Batched([], limits)
        self._advantages: list[float] = []
        self._weights = ""

    def played(self, played: Sequence[Played], *, step: int, n_updates: int) -> None:
        """The rollouts of a step or a validation, answered by weights after `n_updates` updates."""
        seen = [_seen(one, n_updates) for one in played]
        records = {one.row["rollout_id"]: one.row for one in played}
        self._log.add(lambda: rollout_rows(seen, records, run_id=self._log.run_id), step=step)

    def batched(self, model: Any, played: Sequence[Played], rows: Trained) -> None:
        """Which rows the step learns from, before its update."""
        left = [one for one in played if one.row["rollout_id"] not in {rollout for rollout, _, _ in rows}]
        why = {one.row["rollout_id"]: UNSCORED if one.row["unscored"] else SMALL for one in left}
        self._batched = Batched([(rollout, row) for rollout, row, _ in rows], self._limits, why)
        self._advantages, self._weights = [advantage for _, _, advantage in rows], fingerprint(model)

    def updated(self, model: Any, metrics: Mapping[str, Any], *, step: int) -> None:
        """The update that was made of them."""
        batched, rows = self._batched, {}
        for n, ((_, row), advantage) in enumerate(zip(batched.rows, self._advantages, strict=True)):
            if usable(row, self._limits):
                rows[n] = UpdatedRow(advantage, sum(row.mask), bool(advantage) or self._every_row_moves, 1)
        updated = Updated(rows, [metrics["actor/grad_norm"]], self._weights, fingerprint(model))
        run_id = self._log.run_id
        self._log.add(lambda: update_rows(batched, updated, metrics, step=step, run_id=run_id), step=step)

    def saved(self, step: int) -> None:
        """A checkpoint."""
        self._log.add(lambda: checkpoint_rows(step, f"{run_folder.CHECKPOINTS}/global_step_{step}"), step=step)


def usable(row: Row, limits: Limits) -> bool:
    """Whether a row can be learned from: its prompt is within the limit, and something in it was sampled."""
    return len(row.prompt) <= limits.prompt_tokens and any(row.mask)


def _seen(one: Played, n_updates: int) -> Seen:
    rollout = one.row["rollout_id"]
    attempt = f"{rollout}/a1"
    calls = [
        Call(
            {
                **{"attempt_id": attempt, "response_id": f"{attempt}/{n}", "weights_version": n_updates},
                **{"started_s": began_s, "ended_s": ended_s},
            },
            turn.prompt,
            turn.sampled,
            finish_reason=reason,
        )
        for n, (turn, reason, (began_s, ended_s)) in enumerate(
            zip(one.turns, one.row["finish_reasons"], one.times, strict=True)
        )
    ]
    times = one.times or [(time.time(),) * 2]
    told = {"id": attempt, "rollout_id": rollout, "n": 1, "status": one.row["status"]}
    told |= {"started_s": times[0][0], "ended_s": times[-1][1]}
    return Seen(rollout, {}, [told], calls)
