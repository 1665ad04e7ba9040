"""The losses that `optim.loss` names: what each sets where a recipe says nothing, and what it leaves no choice in.

Docs/15-training.md has the formulas and their sources, and shows PRESETS. A loss of one's own is "module:function".
"""

from __future__ import annotations

from typing import Any, Literal

Advantage = Literal["group", "group_no_std", "rloo", "opo", "reinforce++"]
Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]

# Loss -> keys of the section whose defaults differ from those of OptimConfig, which are grpo's.
PRESETS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "dapo": {"clip_high": 0.28, "overlong_filter": True},
    "dr_grpo": {"advantage": "group_no_std", "loss_aggregation": "seq-mean-token-sum-norm", "clip_high": 0.2},
    "gspo": {"loss_aggregation": "seq-mean-token-mean", "clip_low": 3e-4, "clip_high": 4e-4},
    "cispo": {"clip_low": 1.0, "clip_high": 4.0},
    "minirl": {"loss_aggregation": "seq-mean-token-sum"},
    "gpg": {},
}
# Keys that a loss does not read: they stay as the loss has them.
FIXED: dict[str, tuple[str, str]] = {
    "gspo": ("loss_aggregation", "its ratio is a row's, and so is its mean"),
    "gpg": ("clip_low clip_high", "it has no ratio and no clip"),
}
# Losses with PPO's clip, which verl calls vanilla.
CLIPPED = ("grpo", "dapo", "dr_grpo")


def is_own(loss: str) -> bool:
    """Whether the loss is the user's: "module:function", or "file.py:function"."""
    return ":" in loss


def with_preset(section: dict[str, Any]) -> dict[str, Any]:
    """The section's keys, those of the loss's preset under the given ones."""
    loss = section.get("loss")
    return {**(PRESETS.get(loss, {}) if isinstance(loss, str) else {}), **section}
