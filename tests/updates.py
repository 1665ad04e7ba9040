"""A training step, as the loops of both back ends make it of a batch with advantages."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from verl import DataProto

from agl_plugin.update.prepare import prepare, result
from agl_plugin.update.rules import GRAD_NORMS, STATE, WEIGHTS_AFTER, WEIGHTS_BEFORE, Updated, UpdateRules
from sql_agent.config import TrainConfig
from sql_agent.local.policy import Policy

# What a worker tells of an update that is made up.
TOLD: dict[str, list[Any]] = {GRAD_NORMS: [], WEIGHTS_BEFORE: ["a"], WEIGHTS_AFTER: ["b"], STATE: [None]}


def step(
    update: Callable[[DataProto], dict[str, list[Any]]], batch: DataProto, rules: UpdateRules, *, number: int = 1
) -> tuple[dict[str, Any], Updated]:
    """Metrics, and what became of the rows. `update` is a worker's; its metrics stay lists."""
    prepared = prepare(batch, rules, step=number)
    told = update(prepared.data)
    metrics, updated = result(prepared, [told])
    return {**metrics, **{name: values for name, values in told.items() if name in metrics}}, updated


def policy_of(model: Any, optimizer: torch.optim.Optimizer, actor: Any, config: TrainConfig) -> Policy:
    """The policy of a run in one process around a model that is there already; `actor` are verl's keys."""
    policy = Policy.__new__(Policy)
    vars(policy).update(
        model=model,
        optimizer=optimizer,
        actor=actor,
        schedule=SimpleNamespace(step=lambda: None),
        pad_id=0,
        _config=config,
        _dtype=torch.float32,
    )
    return policy
