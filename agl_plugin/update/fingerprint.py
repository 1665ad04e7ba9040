"""A short text that tells whether weights changed."""

from __future__ import annotations

import hashlib

import torch

ELEMENTS = 4096


def fingerprint(model: torch.nn.Module) -> str:
    """A hash of some 4,096 elements of this rank's shard of each parameter, evenly spread: equal for equal weights."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        shard = getattr(parameter, "_local_tensor", parameter).detach().flatten()
        some = shard[:: max(1, shard.numel() // ELEMENTS)]
        found.update(some.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]
