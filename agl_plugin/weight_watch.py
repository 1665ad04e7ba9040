"""What this project adds to verl's actor: even mini batches, and proof that weights move.

Imported by verl inside the training workers (`model.external_lib`), on CPU and GPU alike. Adds to what the actor
reports per step: `actor/weights_changed_share`, `actor/updates` and `actor/updates_skipped` (optimizer steps, and those
of them that verl left out because the gradient was not finite).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from verl import DataProto
from verl.workers.actor.dp_actor import DataParallelPPOActor

from agl_plugin import even_batches

SAMPLED_ELEMENTS = 1024
LOSSES = {"actor/pg_loss", "actor/kl_loss"}

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
    self.agentgrpo_moved = max(self.agentgrpo_moved, sum(moved) / max(len(moved), 1))
    self.agentgrpo_norms.append(grad_norm.detach().item())
    return grad_norm


def update_policy(self: Any, data: DataProto) -> Any:
    """verl's update on evenly spread rows, with more metrics. `actor/grad_norm` is the mean of the finite ones."""
    self.agentgrpo_moved, self.agentgrpo_norms = 0.0, []
    n_updates = data.meta_info.get(even_batches.N_UPDATES)
    if n_updates and not self.config.use_dynamic_bsz:
        micro = self.config.ppo_micro_batch_size_per_gpu
        rows = even_batches.rows_per_update(len(data), n_updates=n_updates, micro_rows=micro)
        even_batches.spread(data, rows=rows, micro_rows=micro)
        self.config.ppo_mini_batch_size = rows
    metrics = _update_policy(self, data=data)
    for name in LOSSES & metrics.keys():  # verl divides by the micro batches twice: in the sum, and in the mean
        metrics[name] = [sum(metrics[name]) / len(self.agentgrpo_norms)]
    finite = [norm for norm in self.agentgrpo_norms if math.isfinite(norm)]
    metrics["actor/grad_norm"] = finite or [math.nan]
    metrics["actor/weights_changed_share"] = [self.agentgrpo_moved]
    metrics["actor/updates"] = [len(self.agentgrpo_norms)]
    metrics["actor/updates_skipped"] = [len(self.agentgrpo_norms) - len(finite)]
    return metrics


DataParallelPPOActor._optimizer_step = optimizer_step  # pyright: ignore[reportPrivateUsage]
DataParallelPPOActor.update_policy = update_policy  # pyright: ignore[reportAttributeAccessIssue]
