"""The loss of a micro batch in a planned update, and the losses of tokens in verl's registry: this project's by their
names, and the user's as soon as a run asks for it.

Guarantees: every trained token (or row) of a training step weighs the same, whichever optimizer step and micro batch it
is in; each loss is weighed by the correction's weights and aggregated by verl's function, as verl's own are. Reports
`actor/pg_clipfrac`, the share of tokens over the bound towards which their advantage would take them, and
`actor/ppo_kl`, as verl's do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict
from verl.trainer.ppo import core_algos
from verl.utils import tensordict_utils as tu
from verl.utils.torch_functional import masked_mean

from agl_plugin.update.batch import IMITATED
from agl_plugin.update.losses import TokenLoss, Tokens, cispo, kl_penalty, load, minirl
from agl_plugin.update.rules import PLAN, Plan
from agl_plugin.update.sampler_gap import SAMPLER_LOG_PROBS, WEIGHTS, known_or_equal, weights_of

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
        divisors = config.global_batch_info
        total = core_algos.agg_loss(loss_mat=losses, loss_mask=response_mask, loss_agg_mode=loss_agg_mode, **divisors)
        shift = (old_log_prob - log_prob).detach()
        return total, {
            "actor/pg_clipfrac": masked_mean(tokens.beyond.float(), response_mask).item(),
            "actor/ppo_kl": masked_mean(shift, response_mask).item(),
        }

    core_algos.register_policy_loss(name)(policy_loss)  # pyright: ignore[reportArgumentType]


for _name, _loss in OWN.items():
    register(_name, _loss)


def step_loss(
    config: Any, model_output: dict[str, torch.Tensor], data: TensorDict, dp_group: Any = None
) -> tuple[torch.Tensor, dict[str, float]]:
    """`micro_batch_loss` as verl calls it, which gives `dp_group`."""
    value_of: Any = tu.get_non_tensor_data
    plan: Plan = value_of(data, PLAN, None)
    return micro_batch_loss(config, model_output, data, plan=plan, epochs=value_of(data, "epochs", 1))


def micro_batch_loss(
    config: Any, scores: Mapping[str, torch.Tensor], rows: Any, *, plan: Plan, epochs: int
) -> tuple[torch.Tensor, dict[str, float]]:
    """A micro batch's share of the training step's loss; the shares add up to the Plan's number of optimizer steps.

    `config` is verl's of the actor; `rows` and `scores` (`log_probs`, `entropy` where it counts) hold rows x response.
    """
    loss_name = config.policy_loss.loss_mode
    if loss_name not in core_algos.POLICY_LOSS_REGISTRY and ":" in loss_name:  # the user's own, "module:function"
        register(loss_name, load(loss_name))
    mask = rows["response_mask"].bool()
    mode = config.loss_agg_mode
    divisors = _divisors(plan)
    config.global_batch_info.update(divisors)
    log_probs = scores["log_probs"]
    # The only pass with a gradient is that of the policy that sampled.
    is_first = len(plan.sizes) * epochs == 1
    loss_of: Any = core_algos.get_policy_loss_fn(config.policy_loss.loss_mode)
    loss, metrics = loss_of(
        old_log_prob=log_probs.detach() if is_first else rows["old_log_probs"],
        log_prob=log_probs,
        advantages=rows["advantages"],
        response_mask=mask,
        loss_agg_mode=mode,
        config=config,
        rollout_is_weights=_correction(rows, log_probs.detach(), mask, plan),
    )
    metrics["actor/pg_loss"] = loss.detach().item()
    if config.entropy_coeff:
        loss = loss - config.entropy_coeff * core_algos.agg_loss(scores["entropy"], mask, mode, **divisors)
    if config.use_kl_loss:
        kl = kl_penalty(log_probs, rows["ref_log_prob"], config.kl_loss_type)
        kl_loss = core_algos.agg_loss(kl, mask, mode, **divisors)
        loss = loss + config.kl_loss_coef * kl_loss
        metrics |= {"actor/kl_loss": kl_loss.detach().item(), "actor/kl_coef": config.kl_loss_coef}
    if IMITATED in rows.keys():  # noqa: SIM118
        imitation_loss = core_algos.agg_loss(-log_probs, mask & rows[IMITATED][:, None], mode, **divisors)
        loss = loss + plan.rules.imitation * imitation_loss
        metrics |= {"actor/imitation_loss": imitation_loss.detach().item()}
    return loss, metrics


def _divisors(plan: Plan) -> dict[str, Any]:
    """What verl's aggregation divides by; the Plan counts per rank."""
    n_steps = len(plan.sizes)
    return {
        "dp_size": 1,
        "batch_num_tokens": max(plan.tokens, 1.0) / n_steps,
        "global_batch_size": max(plan.rows, 1.0) / n_steps,
        "loss_scale_factor": plan.rules.row_tokens,
    }


def _correction(rows: Any, log_probs: torch.Tensor, mask: torch.Tensor, plan: Plan) -> torch.Tensor | None:
    """The correction's weights, where there are any: made here if no pass before the update could make them."""
    if plan.only_pass and plan.rules.correction != "off" and SAMPLER_LOG_PROBS in rows.keys():  # noqa: SIM118
        return weights_of(log_probs, known_or_equal(rows[SAMPLER_LOG_PROBS], log_probs), mask, plan.rules)
    return rows.get(WEIGHTS, None)
