"""What tells of weights and of the optimizer: a short text, and a sample that can be compared with a tolerance."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import torch

ELEMENTS = 4096
SAMPLED_ELEMENTS = 512
MOMENTS = ("exp_avg", "exp_avg_sq")
SETTINGS = ("lr", "betas", "eps", "weight_decay")


def fingerprint(model: torch.nn.Module) -> str:
    """A hash of some 4,096 elements of this rank's shard of each parameter, evenly spread: equal for equal weights."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(_spread(parameter, ELEMENTS).cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def sampled(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """Some 512 elements of this rank's shard of each tensor, evenly spread, in float32."""
    return torch.cat([torch.zeros(0), *(_spread(tensor, SAMPLED_ELEMENTS).float().cpu() for tensor in tensors)])


def shard_of(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of this rank's shard."""
    return getattr(tensor, "_local_tensor", tensor).detach().flatten()


def _spread(tensor: torch.Tensor, n: int) -> torch.Tensor:
    shard = shard_of(tensor)
    return shard[:: max(1, shard.numel() // n)]


def moments(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """A sample of each of AdamW's moments; without elements before its first step."""
    states = [optimizer.state.get(p, {}) for group in optimizer.param_groups for p in group["params"]]
    return {name: sampled(state[name] for state in states if name in state) for name in MOMENTS}


def settings_of(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What the optimizer steps by, of its first group, and how many steps it has made."""
    (group, *_), states = optimizer.param_groups, optimizer.state.values()
    n_steps = max((int(state["step"]) for state in states if "step" in state), default=0)
    settings = {name: group[name] for name in SETTINGS if name in group}
    return {
        **settings,
        "betas": [float(beta) for beta in group.get("betas", ())],
        "lr": float(group["lr"]),
        "steps": n_steps,
    }
