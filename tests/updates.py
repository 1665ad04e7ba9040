"""A training step of one rank, as the trainer's loop makes it of a batch with advantages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from verl import DataProto

from agl_plugin.update.prepare import prepare, result
from agl_plugin.update.rules import GRAD_NORMS, STATE, WEIGHTS_AFTER, WEIGHTS_BEFORE, Updated, UpdateRules

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
