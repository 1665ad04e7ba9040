"""verl's actor with exact token weights, no computed padding, and proof that weights move.

Guarantees, whatever the order and number of rows: every trained token of a step weighs the same (verl averages per
micro batch, so that tokens of short micro batches weigh more); a step has the planned number of optimizer steps, which
the trainer names in `meta_info` (verl gives a few rows too many a step of their own); micro batches are as wide as
their longest row, and have logits for the trained tokens alone, which changes no result; where the trainer asks for it,
entropy and sampler gap are measured in the update's own forward pass. Imported by verl inside the training workers
(`model.external_lib`), on CPU and GPU alike.
Adds to what the actor reports: `actor/weights_changed_share`, `actor/updates`, `actor/updates_skipped` (steps that verl
left out because the gradient was not finite).
Not covered: loss aggregation other than token-mean, which stays as verl has it; the column cut, where padding is
removed already.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.functional import pad
from verl import DataProto
from verl.trainer.ppo import core_algos
from verl.utils import torch_functional as verl_F
from verl.workers.actor import dp_actor
from verl.workers.actor.dp_actor import DataParallelPPOActor

from agl_plugin.update import sampler_gap
from agl_plugin.update.rules import MEASURE_CAP, N_UPDATES, STEP_OVER_BATCH

SAMPLED_ELEMENTS = 1024
SUMMED_METRICS = ("actor/pg_loss", "actor/kl_loss")

_optimizer_step = DataParallelPPOActor._optimizer_step  # pyright: ignore[reportPrivateUsage]
_forward_micro_batch = DataParallelPPOActor._forward_micro_batch  # pyright: ignore[reportPrivateUsage]
_update_policy = DataParallelPPOActor.update_policy
_compute_log_prob = DataParallelPPOActor.compute_log_prob
_agg_loss = core_algos.agg_loss
_token_scale: list[float] = []
# Inside an update that measures: entropy and log-probabilities of its micro batches, rows x response.
_measured: list[tuple[torch.Tensor, torch.Tensor]] | None = None


def agg_loss(loss_mat: torch.Tensor, loss_mask: torch.Tensor, loss_agg_mode: str) -> torch.Tensor:
    """verl's aggregation; inside an update, token-mean divides by the tokens of the step, not of the micro batch."""
    if _token_scale and loss_agg_mode == "token-mean":
        return torch.where(loss_mask.bool(), loss_mat, 0.0).sum() * _token_scale[-1]
    return _agg_loss(loss_mat, loss_mask, loss_agg_mode)


def rows_per_update(n_rows: int, *, n_updates: int, micro_rows: int) -> int:
    """Rows of one optimizer step: a multiple of `micro_rows`, such that at most `n_updates` steps are made."""
    return math.ceil(math.ceil(n_rows / n_updates) / micro_rows) * micro_rows


def lengths(data: DataProto) -> torch.Tensor:
    """Tokens of each row, padding left out."""
    return data.batch["attention_mask"].sum(dim=1)


def by_length(data: DataProto, mini_rows: int) -> torch.Tensor:
    """An order of rows that sorts each run of `mini_rows` by length, so that its micro batches hold like lengths."""
    parts = torch.arange(len(data)).split(mini_rows)
    all_lengths = lengths(data).cpu()
    return torch.cat([part[torch.argsort(all_lengths[part], stable=True)] for part in parts])


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


@contextmanager
def logits_at(model: torch.nn.Module, places: torch.Tensor) -> Iterator[None]:
    """Inside the block, calls of the model give the logits at `places` (rows x positions) alone: 1 x places x words."""
    head = output_head(model)
    assert head is not None
    hook = head.register_forward_pre_hook(lambda _head, args: (args[0][places][None], *args[1:]))
    try:
        yield
    finally:
        hook.remove()


def output_head(model: torch.nn.Module) -> torch.nn.Module | None:
    """The layer of a transformers model (maybe in FSDP, with an adapter) that makes logits of hidden states."""
    found = getattr(model, "get_output_embeddings", lambda: None)()
    return found if isinstance(found, torch.nn.Module) else None


def forward_trained(
    self: Any, micro_batch: dict[str, Any], temperature: float, calculate_entropy: bool
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Entropies and log-probabilities of the trained tokens, rows x response; elsewhere 0.

    Without a `response_mask` all tokens of the responses count, tool results too. Entropies have a graph only where
    they are part of the loss.
    """
    cut, n_response = cut_columns(micro_batch)
    wanted = cut.get("response_mask", cut["attention_mask"][:, -n_response:])[:, :n_response].bool()
    places = torch.zeros_like(cut["attention_mask"], dtype=torch.bool)
    places[:, -n_response - 1 : -1] = wanted  # logits of a position are those of the next token
    inputs = {name: cut[name] for name in ("input_ids", "attention_mask", "position_ids")}
    precision: dict[str, Any] = {"dtype": self.param_dtype, "enabled": self.param_dtype != torch.float32}
    with torch.autocast(self.device_name, **precision), logits_at(self.actor_module, places):
        logits = self.actor_module(**inputs, use_cache=False).logits[0].div_(temperature)
    log_probs = verl_F.logprobs_from_logits(logits[None], cut["responses"][wanted][None], inplace_backward=False)[0]
    entropies = None
    if calculate_entropy:
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.config.entropy_coeff != 0):
            entropies = verl_F.entropy_from_logits(logits)
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
    entropy, log_probs = forward(self, micro_batch, temperature, calculate_entropy or _measured is not None)
    if _measured is not None and entropy is not None:
        _measured.append((entropy.detach().cpu(), log_probs.detach().cpu()))
    return entropy, log_probs


def compute_log_prob(self: Any, data: DataProto, calculate_entropy: bool = False) -> tuple[torch.Tensor, Any]:
    """verl's log-probabilities, computed in order of length; results are in the order of the rows."""
    if data.meta_info["use_dynamic_bsz"]:
        return _compute_log_prob(self, data, calculate_entropy)  # pyright: ignore[reportReturnType]
    order = by_length(data, len(data))
    back = torch.argsort(order)
    log_probs, entropies = _compute_log_prob(self, data.select_idxs(order), calculate_entropy)
    return log_probs[back], None if entropies is None else entropies[back]


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


def tokens_per_rank(data: DataProto) -> float:
    """Trained tokens of the step for a rank, the mean over ranks (FSDP averages the ranks' gradients)."""
    tokens = data.batch["response_mask"].sum().double()
    if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        torch.distributed.all_reduce(tokens)
        tokens /= torch.distributed.get_world_size()
    return max(1.0, float(tokens)) * data.meta_info.get(STEP_OVER_BATCH, 1.0)


def update_policy(self: Any, data: DataProto) -> dict[str, Any]:
    """verl's update of this rank's rows. `actor/grad_norm` is the mean of the finite ones."""
    self.agentgrpo_moved, self.agentgrpo_norms = 0.0, []
    n_updates = data.meta_info.get(N_UPDATES)
    if n_updates and not self.config.use_dynamic_bsz:
        metrics = _even_update(self, data, n_updates)
    else:
        metrics = _update_policy(self, data)
    finite = [norm for norm in self.agentgrpo_norms if math.isfinite(norm)]
    metrics["actor/grad_norm"] = finite or [math.nan]
    metrics["actor/weights_changed_share"] = [self.agentgrpo_moved]
    metrics["actor/updates"] = [len(self.agentgrpo_norms)]
    metrics["actor/updates_skipped"] = [len(self.agentgrpo_norms) - len(finite)]
    return metrics


def _even_update(self: Any, data: DataProto, n_updates: int) -> dict[str, Any]:
    global _measured
    micro = self.config.ppo_micro_batch_size_per_gpu
    mini = rows_per_update(len(data), n_updates=n_updates, micro_rows=micro)
    steps = math.ceil(len(data) / mini)
    meant, self.config.ppo_mini_batch_size = self.config.ppo_mini_batch_size, mini
    data = data.select_idxs(by_length(data, mini))
    # verl divides each micro batch's loss by mini // micro.
    _token_scale.append(steps * (mini // micro) / tokens_per_rank(data))
    cap = data.meta_info.get(MEASURE_CAP)
    _measured = None if cap is None else []
    try:
        metrics = _update_policy(self, data)
        if cap is not None:
            metrics |= {name: [value] for name, value in _measurements(data, _measured or [], cap=cap).items()}
    finally:
        _token_scale.clear()
        _measured = None
        self.config.ppo_mini_batch_size = meant
    if self.config.loss_agg_mode == "token-mean":  # verl divides by the micro batches twice: in the sum, in the mean
        metrics |= {name: [sum(metrics[name]) / steps] for name in SUMMED_METRICS if name in metrics}
    return metrics


def _measurements(
    data: DataProto, measured: list[tuple[torch.Tensor, torch.Tensor]], *, cap: float
) -> dict[str, float]:
    """Entropy per trained token, and the sampler gap, of an update in one step. `measured` is in the order of rows."""
    entropies, log_probs = (torch.cat(parts) for parts in zip(*measured, strict=True))
    tensors: Any = data.batch
    mask = tensors["response_mask"].cpu()
    metrics = {"actor/entropy_loss": entropies[mask == 1].mean().item()}
    if sampler_gap.HIDDEN_LOG_PROBS in tensors:
        metrics |= sampler_gap.compare(log_probs, tensors[sampler_gap.HIDDEN_LOG_PROBS].cpu(), mask, cap=cap)
    return metrics


core_algos.agg_loss = dp_actor.agg_loss = agg_loss  # pyright: ignore[reportPrivateImportUsage]
DataParallelPPOActor._forward_micro_batch = forward_micro_batch  # pyright: ignore
DataParallelPPOActor._optimizer_step = optimizer_step  # pyright: ignore[reportPrivateUsage]
DataParallelPPOActor.compute_log_prob = compute_log_prob  # pyright: ignore[reportAttributeAccessIssue]
DataParallelPPOActor.update_policy = update_policy  # pyright: ignore[reportAttributeAccessIssue]
