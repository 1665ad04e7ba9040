"""verl's actor with planned steps, exact token weights, no computed padding, and proof that weights move.

Guarantees: the optimizer steps are those of the Plan in `meta_info`, which the trainer made (verl would cut the rows by
itself, into short steps too); every trained token of a training step weighs the same, whichever optimizer step and
micro batch it is in (verl averages per micro batch, so that tokens of short ones weigh more); micro batches are as wide
as their longest row, and have logits for the trained tokens alone, which changes no result; log-probabilities and
entropies are float32. Takes the place of verl's functions in the training workers (agl_plugin/patches/register.py), on
CPU and GPU alike, and without a difference between them.
Adds to what the actor reports: `actor/weights_changed_share`, `actor/updates`, `actor/updates_skipped` (steps that verl
left out because the gradient was not finite), and what `prepared` keeps for the audit.
Not covered: batches without a Plan, and micro batches of dynamic size, which verl cuts and weighs; the column cut and
float32, where padding is removed already or kernels are fused: verl's own pass has the precision of its autocast there.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch.nn.functional import pad
from verl import DataProto
from verl.trainer.ppo import core_algos
from verl.workers.actor.dp_actor import DataParallelPPOActor

from agl_plugin.update.fingerprint import fingerprint, moments, sampled, settings_of
from agl_plugin.update.policy_loss import ensure_registered
from agl_plugin.update.rules import GRAD_NORMS, PLAN, STATE, WEIGHTS_AFTER, WEIGHTS_BEFORE, Plan
from agl_plugin.update.token_scores import logits_at, output_head, token_scores

SAMPLED_ELEMENTS = 1024
SUMMED_METRICS = ("actor/pg_loss", "actor/kl_loss")

_optimizer_step = DataParallelPPOActor._optimizer_step  # pyright: ignore[reportPrivateUsage]
_forward_micro_batch = DataParallelPPOActor._forward_micro_batch  # pyright: ignore[reportPrivateUsage]
_update_policy = DataParallelPPOActor.update_policy
_agg_loss = core_algos.agg_loss
_running: list[Plan] = []  # that of the update under way


class PlannedBatch(DataProto):
    """A rank's share of a training step, which verl's actor splits into the optimizer steps of its Plan."""

    def split(self, split_size: int) -> list[DataProto]:
        """The rows of each optimizer step; `split_size` is verl's idea of it."""
        ends = list(itertools.accumulate(self.meta_info[PLAN].sizes))
        rows: Any = DataProto(self.batch, self.non_tensor_batch, self.meta_info)
        return [rows[start:end] for start, end in zip([0, *ends], ends, strict=False) if start < end]


def agg_loss(loss_mat: torch.Tensor, loss_mask: torch.Tensor, loss_agg_mode: str) -> torch.Tensor:
    """verl's aggregation; in a planned update the micro batch's share of it, by its tokens or rows.

    The shares of a training step add up to its number of optimizer steps, so that one step of it is a mean.
    """
    own = _agg_loss(loss_mat, loss_mask, loss_agg_mode)
    if not _running:
        return own
    plan = _running[-1]
    if loss_agg_mode == "token-mean":
        share = loss_mask.sum() / max(plan.tokens, 1.0)
    elif loss_agg_mode.endswith("-norm"):  # a sum over rows, divided by the width that this batch happens to have
        share = loss_mask.shape[1] / plan.row_tokens / max(plan.rows, 1.0)
    else:  # a mean over rows
        share = (loss_mask.sum(dim=1) > 0).sum() / max(plan.rows, 1.0)
    return own * share * len(plan.sizes)


def cut_columns(micro_batch: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The micro batch without the columns that hold padding alone, and the width of the responses left.

    Expects prompts padded on the left and responses on the right; tensors are rows x (prompt + response).
    """
    mask, width = micro_batch["attention_mask"], micro_batch["responses"].size(-1)
    prompt_width = mask.size(1) - width
    n_prompt = max(1, int(mask[:, :prompt_width].sum(dim=1).max()))
    n_response = max(1, int(mask[:, prompt_width:].sum(dim=1).max()))
    columns = slice(prompt_width - n_prompt, prompt_width + n_response)
    cut = {name: micro_batch[name][:, columns] for name in ("input_ids", "attention_mask", "position_ids")}
    return {**micro_batch, **cut, "responses": micro_batch["responses"][:, :n_response]}, n_response


def forward_trained(
    self: Any, micro_batch: dict[str, Any], temperature: float, calculate_entropy: bool
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Entropies and log-probabilities of the trained tokens, rows x response; elsewhere 0.

    Without a `response_mask` all tokens of the responses count, tool results too.
    """
    cut, n_response = cut_columns(micro_batch)
    wanted = cut.get("response_mask", cut["attention_mask"][:, -n_response:])[:, :n_response].bool()
    places = torch.zeros_like(cut["attention_mask"], dtype=torch.bool)
    places[:, -n_response - 1 : -1] = wanted  # logits of a position are those of the next token
    inputs = {name: cut[name] for name in ("input_ids", "attention_mask", "position_ids")}
    precision: dict[str, Any] = {"dtype": self.param_dtype, "enabled": self.param_dtype != torch.float32}
    with torch.autocast(self.device_name, **precision), logits_at(self.actor_module, places):
        logits = self.actor_module(**inputs, use_cache=False).logits[0]
    tokens = cut["responses"][wanted]
    log_probs, entropies = token_scores(logits, tokens, temperature=temperature, with_entropy=calculate_entropy)
    missing = (0, micro_batch["responses"].size(-1) - n_response)

    def in_rows(values: torch.Tensor) -> torch.Tensor:
        return pad(values.new_zeros(wanted.shape).masked_scatter(wanted, values), missing)

    return None if entropies is None else in_rows(entropies), in_rows(log_probs)


def forward_micro_batch(
    self: Any, micro_batch: Any, temperature: float, calculate_entropy: bool = False
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """verl's forward pass without the columns that hold padding alone and without logits that nobody reads.

    Where padding is removed already, and for models with images, it is verl's own.
    """
    theirs = self.use_remove_padding or self.use_fused_kernels or "multi_modal_inputs" in micro_batch
    theirs = theirs or micro_batch["position_ids"].dim() != 2 or output_head(self.actor_module) is None
    forward = _forward_micro_batch if theirs else forward_trained
    return forward(self, micro_batch, temperature, calculate_entropy)


def sample(actor: Any) -> list[torch.Tensor]:
    """Copies of the first 1,024 elements of this rank's shard of each parameter."""
    shards = (getattr(p, "_local_tensor", p).detach() for p in actor.actor_module.parameters())
    return [s.flatten()[:SAMPLED_ELEMENTS].clone() for s in shards if s.numel()]


def optimizer_step(self: Any) -> Any:
    """verl's step, with its gradient norm and the share of moved tensors kept.

    A learning rate that vanishes in the precision of the weights, or a skipped update, shows as 0.
    """
    before = sample(self)
    grad_norm = _optimizer_step(self)
    moved = [not torch.equal(a, b) for a, b in zip(before, sample(self), strict=True)]
    self.agentgrpo_moved = max(self.agentgrpo_moved, sum(moved) / max(len(moved), 1))
    self.agentgrpo_norms.append(grad_norm.detach().item())
    return grad_norm


def update_policy(self: Any, data: DataProto) -> dict[str, Any]:
    """verl's update of this rank's rows. `actor/grad_norm` is the mean of the finite ones."""
    ensure_registered(self.config.policy_loss.loss_mode)
    self.agentgrpo_moved, self.agentgrpo_norms = 0.0, []
    before, weights = fingerprint(self.actor_module), sampled(self.actor_module.parameters())
    settings = settings_of(self.actor_optimizer) | {"grad_clip": self.config.grad_clip}
    plan = None if self.config.use_dynamic_bsz else data.meta_info.get(PLAN)
    metrics = _planned_update(self, data, plan) if plan else _update_policy(self, data)
    finite = [norm for norm in self.agentgrpo_norms if math.isfinite(norm)]
    metrics["actor/grad_norm"] = finite or [math.nan if self.agentgrpo_norms else 0.0]
    metrics["actor/weights_changed_share"] = [self.agentgrpo_moved]
    metrics["actor/updates"] = [len(self.agentgrpo_norms)]
    metrics["actor/updates_skipped"] = [len(self.agentgrpo_norms) - len(finite)]
    metrics[GRAD_NORMS] = self.agentgrpo_norms
    metrics[WEIGHTS_BEFORE], metrics[WEIGHTS_AFTER] = [before], [fingerprint(self.actor_module)]
    after = sampled(self.actor_module.parameters())
    state = {"settings": settings, "weights_before": weights, "weights_after": after}
    metrics[STATE] = [state | moments(self.actor_optimizer)]
    return metrics


def _planned_update(self: Any, data: DataProto, plan: Plan) -> dict[str, Any]:
    config = self.config
    meant = config.ppo_mini_batch_size
    config.ppo_mini_batch_size = config.ppo_micro_batch_size_per_gpu  # verl divides each loss by their ratio
    _running.append(plan)
    try:
        metrics = _update_policy(self, PlannedBatch(data.batch, data.non_tensor_batch, data.meta_info))
    finally:
        _running.clear()
        config.ppo_mini_batch_size = meant
    metrics.setdefault("actor/pg_loss", [0.0])  # without any advantage it is that
    n_passes = len(plan.sizes) * config.ppo_epochs
    return metrics | {name: [sum(metrics[name]) / n_passes] for name in SUMMED_METRICS if name in metrics}
