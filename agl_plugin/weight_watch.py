"""Proof that weights move: adds `actor/weights_changed_share` to what verl's actor reports per step.

Imported by verl inside the training workers (`model.external_lib`), on CPU and GPU alike.
"""

from __future__ import annotations

from typing import Any

import torch
from verl.workers.actor.dp_actor import DataParallelPPOActor

SAMPLED_ELEMENTS = 1024

_optimizer_step = DataParallelPPOActor._optimizer_step  # pyright: ignore[reportPrivateUsage]
_update_policy = DataParallelPPOActor.update_policy


def sample(actor: Any) -> list[torch.Tensor]:
    """Copies of the first 1,024 elements of this rank's shard of each parameter."""
    shards = (getattr(p, "_local_tensor", p).detach() for p in actor.actor_module.parameters())
    return [s.flatten()[:SAMPLED_ELEMENTS].clone() for s in shards if s.numel()]


def optimizer_step(self: Any) -> Any:
    """verl's step, with the share of moved tensors kept.

    A learning rate that vanishes in the precision of the weights, or a skipped update, shows as 0.
    """
    before = sample(self)
    grad_norm = _optimizer_step(self)
    moved = [not torch.equal(a, b) for a, b in zip(before, sample(self), strict=True)]
    self.agentgrpo_moved = max(getattr(self, "agentgrpo_moved", 0.0), sum(moved) / max(len(moved), 1))
    return grad_norm


def update_policy(self: Any, *args: Any, **kwargs: Any) -> Any:
    """verl's update, with one more metric."""
    self.agentgrpo_moved = 0.0
    metrics = _update_policy(self, *args, **kwargs)
    metrics["actor/weights_changed_share"] = [self.agentgrpo_moved]
    return metrics


DataParallelPPOActor._optimizer_step = optimizer_step  # pyright: ignore[reportPrivateUsage]
DataParallelPPOActor.update_policy = update_policy
