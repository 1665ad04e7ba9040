"""A run folder with an audit, made by the daemon, the update and the audit of training; only rollouts are played."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import agentlightning as agl
import pytest

from agl_plugin.audit.facts import checkpoint_rows, update_rows
from agl_plugin.audit.log import AuditLog
from agl_plugin.daemon import GrpoDaemon
from agl_plugin.options import DaemonOptions
from agl_plugin.update.rows import Limits
from agl_plugin.update.rules import UpdateRules
from foundation import run_folder
from foundation.files import append_lines
from tests import updates
from tests.actor import actor_of, one_rank, tiny_model, with_advantages

RULES = UpdateRules(n_updates=2, cap=2.0, seed=5)
MAX_PROMPT, MAX_RESPONSE, MAX_TOGETHER = 14, 8, 10
STEPS = 3


def settings(level: str, rules: UpdateRules = RULES, *, group_size: int = 2) -> dict[str, Any]:
    """As agl_plugin.algorithm keeps them, as far as this run has any."""
    together = {"trajectory_max_prompt_length": MAX_PROMPT, "trajectory_max_response_length": MAX_TOGETHER}
    verl = {
        "agentlightning": {"trace_aggregator": {"level": level, **together}},
        "algorithm": {"adv_estimator": "group_rollouts"},
        "data": {"max_prompt_length": MAX_PROMPT, "max_response_length": MAX_RESPONSE},
        "actor_rollout_ref": {
            "model": {"path": "models/none"},
            "rollout": {"n": group_size, "temperature": 1.0},
        },
    }
    return {"verl": verl, "rules": dataclasses.asdict(rules)}


@contextmanager
def collecting(folder: Path, audit: AuditLog, *, level: str) -> Iterator[GrpoDaemon]:
    """A daemon on a store in memory."""
    daemon = GrpoDaemon(
        model="m", group_size=2, temperature=1.0, pad_token_id=0, merge=level == "trajectory",
        store=agl.InMemoryLightningStore(thread_safe=True), run_dir=folder, audit=audit,
        options=DaemonOptions(poll_interval_s=0.01, rollout_timeout_s=60.0, stall_s=30.0),
    )  # fmt: skip
    yield daemon
    daemon.close()


def make_run(
    folder: Path,
    groups: list[list[Any]],
    *,
    level: str = "trajectory",
    rules: UpdateRules = RULES,
    group_size: int = 2,
) -> Path:
    """A run of STEPS steps on these groups of rollouts, with a validation before and a checkpoint after the second.

    `group_size` is what its settings say of all groups.
    """
    from tests.unit.test_daemon import finish, scored

    folder.mkdir(parents=True)
    with (
        pytest.MonkeyPatch.context() as patched,
        one_rank(folder.parent),
        AuditLog(folder, settings=settings(level, rules, group_size=group_size)) as audit,
        collecting(folder, audit, level=level) as daemon,
    ):
        patched.setattr("agl_plugin.daemon.LATE_SPANS_S", 0.2)
        actor = actor_of(tiny_model(vocabulary=16), micro_rows=2, lr=0.1)
        daemon.step = 0
        finish(daemon, [[scored(0.5)]], is_train=False)
        for daemon.step in range(1, STEPS + 1):
            finish(daemon, groups, name=f"step-{daemon.step}-")
            update_step(daemon, audit, actor, rules)
            if daemon.step == 2:
                audit.add(lambda: checkpoint_rows(2, f"{run_folder.CHECKPOINTS}/global_step_2"), step=2)
    return folder


def update_step(daemon: GrpoDaemon, audit: AuditLog, actor: Any, rules: UpdateRules) -> None:
    """What the trainer does with a step's batch, without its passes before the update."""
    batch, _ = daemon.batch(Limits(MAX_PROMPT, MAX_TOGETHER if daemon.merge else MAX_RESPONSE))
    batch: Any = with_advantages(batch)[~batch.batch["is_drop_mask"]]
    step, batched = daemon.step, daemon.batched
    found, updated = updates.step(actor.update_policy, batch, rules, number=step)
    numbers = {key: sum(value) / len(value) if isinstance(value, list) else value for key, value in found.items()}
    append_lines(daemon.run_dir / run_folder.METRICS, [{"kind": "train", "step": step, **numbers}])
    assert batched
    audit.add(lambda: update_rows(batched, updated, numbers, step=step, run_id=audit.run_id), step=step)
