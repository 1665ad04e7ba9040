"""What an update tells of itself, whoever makes its optimizer steps: the means of its losses, whether weights moved,
and what the audit keeps.

`actor/grad_norm` is the mean of the finite norms, `actor/updates_skipped` counts steps whose gradient was not finite,
`actor/weights_changed_share` is the largest share of parameters that moved in a step: a learning rate that vanishes in
the precision of the weights, or a skipped step, shows as 0.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch

from agl_plugin.update.fingerprint import fingerprint, moments, sampled, settings_of, shard_of
from agl_plugin.update.rules import GRAD_NORMS, SCORES, STATE, WEIGHTS_AFTER, WEIGHTS_BEFORE, Plan

SAMPLED_ELEMENTS = 1024
# Parts of micro batches that add up to a training step's, as means.
SUMS = ("actor/pg_loss", "actor/kl_loss", "actor/imitation_loss")


class Telling:
    """Of one update of this rank. Begins with the weights before it."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, clip: float) -> None:
        self._model, self._optimizer = model, optimizer
        self._settings = settings_of(optimizer) | {"grad_clip": clip}
        self._before, self._weights = fingerprint(model), sampled(model.parameters())
        self._norms: list[float] = []
        self._moved = 0.0
        self._metrics: dict[str, list[Any]] = defaultdict(list)

    def passed(self, metrics: Mapping[str, Any]) -> None:
        """The metrics of micro batches, one value or several each."""
        for name, values in metrics.items():
            self._metrics[name] += values if isinstance(values, list) else [values]

    def scored(self, log_probs: torch.Tensor, entropies: torch.Tensor) -> None:
        """What the only pass of the policy gave, rows x response."""
        self._metrics[SCORES] = [(log_probs.cpu(), entropies.cpu())]

    def stepped(self, step: Callable[[], float]) -> float:
        """Make an optimizer step, which gives its gradient's norm."""
        before = self._sample()
        norm = step()
        self._norms.append(norm)
        moved = [not torch.equal(a, b) for a, b in zip(before, self._sample(), strict=True)]
        self._moved = max(self._moved, sum(moved) / max(len(moved), 1))
        return norm

    def _sample(self) -> list[torch.Tensor]:
        """Copies of the first elements of this rank's shard of each parameter."""
        shards = map(shard_of, self._model.parameters())
        return [shard[:SAMPLED_ELEMENTS].clone() for shard in shards if shard.numel()]

    def metrics(self, plan: Plan, *, epochs: int) -> dict[str, list[Any]]:
        """All of it, after the last step: agl_plugin.update.prepare.result reads it."""
        metrics = dict(self._metrics)
        model = self._model
        for name in SUMS:
            if name in metrics or name == "actor/pg_loss":  # without any advantage it is 0
                metrics[name] = [sum(metrics.get(name, [])) / (len(plan.sizes) * epochs)]
        finite = [norm for norm in self._norms if math.isfinite(norm)]
        state = {"settings": self._settings, "weights_before": self._weights, **moments(self._optimizer)}
        return metrics | {
            "actor/lr": [self._settings["lr"]],
            "actor/grad_norm": finite or [math.nan if self._norms else 0.0],
            "actor/weights_changed_share": [self._moved],
            "actor/updates": [len(self._norms)],
            "actor/updates_skipped": [len(self._norms) - len(finite)],
            GRAD_NORMS: self._norms,
            WEIGHTS_BEFORE: [self._before],
            WEIGHTS_AFTER: [fingerprint(model)],
            STATE: [{**state, "weights_after": sampled(model.parameters())}],
        }
