"""Optimizer and schedule of verl's configuration, for a model that this process holds itself: what verl's engine makes
of the same keys, without its engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.torch_functional import get_constant_schedule_with_warmup, get_cosine_schedule_with_warmup
from verl.workers.config import FSDPActorConfig
from verl.workers.config.optimizer import build_optimizer

Schedule = torch.optim.lr_scheduler.LRScheduler


def actor_config(config: Any) -> FSDPActorConfig:
    """verl's settings of the actor, of the configuration of a run."""
    return omega_conf_to_dataclass(config.actor_rollout_ref.actor)


def made_optimizer(parameters: Iterable[torch.nn.Parameter], actor: Any) -> tuple[torch.optim.Optimizer, Schedule]:
    """The optimizer over the parameters that are trained, and the schedule of its learning rate over training steps."""
    keys = actor.optim
    optimizer = build_optimizer([parameter for parameter in parameters if parameter.requires_grad], keys)
    if keys.lr_scheduler_type == "constant":
        return optimizer, get_constant_schedule_with_warmup(optimizer, num_warmup_steps=keys.lr_warmup_steps)
    return optimizer, get_cosine_schedule_with_warmup(
        optimizer,
        num_warmup_steps=keys.lr_warmup_steps,
        num_training_steps=keys.total_training_steps,
        min_lr_ratio=keys.min_lr_ratio,
        num_cycles=keys.num_cycles,
        zero_indexed_step=keys.zero_indexed_step,
    )
