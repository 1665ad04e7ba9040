"""How far the sampler (vLLM) and the trainer disagree about the same tokens, and the correction for it.

Both hold the same weights, but compute with other kernels and precisions; what is sampled is then slightly off-policy.
Per sampled token, d = log p_trainer - log p_sampler and r = exp(d). Reported in each step that has the sampler's
log-probabilities, whether it is corrected or not:
  sampler/log_prob_diff_mean, _max   mean and largest |d|
  sampler/kl_k1, kl_k3               estimates of KL(sampler || trainer): mean of -d, and of r - 1 - d (Schulman 2020)
  sampler/effective_sample_share     1 / mean((w / mean w)^2) with w = r clamped to [1/cap, cap]
  sampler/outside_share              tokens with r outside [1/cap, cap]
  sampler/weight_mean                mean of the weights min(r, cap)
The correction multiplies each token's loss by a weight, with r of the token or the product of its row's:
  truncated  min(r, cap) (Ionides 2008; for vLLM and FSDP, Yao et al. 2025)
  masked     r inside [1/cap, cap], 0 outside (Liu et al. 2025, When speed kills stability); the divisor stays
The loss applies the weights. d is bounded by MOST, so that r stays finite.
"""

from __future__ import annotations

import torch
from verl import DataProto

from agl_plugin.update.rules import UpdateRules

SAMPLER_LOG_PROBS = "rollout_log_probs"
WEIGHTS = "rollout_is_weights"  # verl's name for it
MOST = 20.0


def correct(batch: DataProto, rules: UpdateRules) -> dict[str, float]:
    """Compare the batch's `old_log_probs` with the sampler's; where the rules correct, add the weights of the loss.

    The sampler's log-probabilities leave the batch: they are not compared again. A token without one counts as equal.
    Returns the metrics; {} for a batch without any.
    """
    tensors = batch.batch
    if tensors is None or SAMPLER_LOG_PROBS not in tensors:
        return {}
    trainer, mask = tensors["old_log_probs"], tensors["response_mask"]
    sampler = tensors.pop(SAMPLER_LOG_PROBS)
    metrics = compare(trainer, sampler, mask, cap=rules.cap)
    if rules.correction != "off" and metrics:
        tensors[WEIGHTS] = weights_of(trainer, known_or_equal(sampler, trainer), mask, rules)
    return metrics


def known_or_equal(sampler: torch.Tensor, trainer: torch.Tensor) -> torch.Tensor:
    """The sampler's log-probabilities, and the trainer's where it gave none."""
    return torch.where(sampler.isnan(), trainer, sampler)


def weights_of(trainer: torch.Tensor, sampler: torch.Tensor, mask: torch.Tensor, rules: UpdateRules) -> torch.Tensor:
    """The correction's weights, rows x response; 0 where nothing was sampled."""
    d = (trainer - sampler) * mask
    if rules.level == "sequence":
        d = d.sum(dim=-1, keepdim=True).expand_as(d)
    r = d.clamp(-MOST, MOST).exp()
    inside = (r >= 1 / rules.cap) & (r <= rules.cap) if rules.correction == "masked" else torch.ones_like(r)
    return r.clamp(max=rules.cap) * inside * mask


def compare(trainer: torch.Tensor, sampler: torch.Tensor, mask: torch.Tensor, *, cap: float) -> dict[str, float]:
    """The metrics of the module's docstring; {} where no sampled token has a log-probability. All rows x response."""
    is_known = ~sampler.isnan() & (mask == 1)
    if not is_known.any():
        return {}
    d = (trainer - sampler)[is_known]
    r = d.clamp(-MOST, MOST).exp()
    bounded = r.clamp(1 / cap, cap)
    figures = {
        "log_prob_diff_mean": d.abs().mean(),
        "log_prob_diff_max": d.abs().max(),
        "kl_k1": -d.mean(),
        "kl_k3": (d.exp() - 1 - d).mean(),
        "effective_sample_share": 1 / (bounded / bounded.mean()).square().mean(),
        "outside_share": ((r > cap) | (r < 1 / cap)).double().mean(),
        "weight_mean": r.clamp(max=cap).mean(),
    }
    return {f"sampler/{name}": value.item() for name, value in figures.items()}
