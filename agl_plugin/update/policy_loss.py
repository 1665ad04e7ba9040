"""Losses in verl's registry: this project's by their names, and the user's as soon as a run asks for it.

Guarantees: each is weighed by the correction's weights and aggregated by verl's function, as verl's own losses are, and
so by the scaling of planned updates. Reports `actor/pg_clipfrac`, the share of tokens over the bound towards which
their advantage would take them, and `actor/ppo_kl`, as verl's do.
"""

from __future__ import annotations

from typing import Any

import torch
from verl.trainer.ppo import core_algos
from verl.utils.torch_functional import masked_mean

from agl_plugin.update.losses import TokenLoss, Tokens, cispo, load, minirl

OWN: dict[str, TokenLoss] = {"cispo": cispo, "minirl": minirl}


def register(name: str, loss: TokenLoss) -> None:
    """Make `name` a loss that verl finds."""

    def policy_loss(
        old_log_prob: torch.Tensor,
        log_prob: torch.Tensor,
        advantages: torch.Tensor,
        response_mask: torch.Tensor,
        loss_agg_mode: str,
        config: Any,
        rollout_is_weights: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, dict[str, float]]:
        mask = response_mask.bool()
        tokens = Tokens(log_prob, old_log_prob, advantages, mask, config.clip_ratio_low, config.clip_ratio_high)
        losses = loss(tokens).where(mask, 0.0)
        if rollout_is_weights is not None:
            losses = losses * rollout_is_weights
        total = core_algos.agg_loss(loss_mat=losses, loss_mask=response_mask, loss_agg_mode=loss_agg_mode)
        shift = (old_log_prob - log_prob).detach()
        return total, {
            "actor/pg_clipfrac": masked_mean(tokens.beyond.float(), response_mask).item(),
            "actor/ppo_kl": masked_mean(shift, response_mask).item(),
        }

    core_algos.register_policy_loss(name)(policy_loss)  # pyright: ignore[reportArgumentType]


def ensure_registered(name: str) -> None:
    """Load a loss of the user, "module:function". Raises ValueError when it cannot be."""
    if name not in core_algos.POLICY_LOSS_REGISTRY and ":" in name:
        register(name, load(name))


for _name, _loss in OWN.items():
    register(_name, _loss)
