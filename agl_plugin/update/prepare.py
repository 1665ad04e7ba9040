"""What happens to a batch between its advantages and the optimizer, on the trainer's side.

Guarantees: the sampler is compared with the trainer, and corrected where the recipe says so; rows that the recipe
leaves out of the loss have no trained token, and count in no divisor; the rows are spread over optimizer steps and
ranks (agl_plugin.update.plan), and those that cannot change a weight are not computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from verl import DataProto
from verl.trainer.ppo.core_algos import kl_penalty

from agl_plugin.update import sampler_gap
from agl_plugin.update.batch import TRUNCATED
from agl_plugin.update.plan import moving, planned
from agl_plugin.update.rules import PLAN, UpdateRules

UpdateActor = Callable[[DataProto], Any]


def prepared(update: UpdateActor, rules: UpdateRules, *, step: Callable[[], int], n_ranks: int = 1) -> UpdateActor:
    """verl's `update_actor`, on a prepared batch and with the metrics of the preparation. `step` tells the number of
    the training step."""

    def update_actor(batch: DataProto) -> Any:
        metrics = sampler_gap.correct(batch, rules) | kl_to_start(batch)
        batch, left_out = filtered(batch, rules)
        data = planned(batch, rules, n_ranks=n_ranks, step=step())
        metrics |= left_out | {
            "batch/rows_left_out": int((~moving(batch, rules)).sum()),
            "actor/updates_without_signal": data.meta_info[PLAN].sizes.count(0),
        }
        output = update(data)
        output.meta_info["metrics"].update(metrics)
        return output

    return update_actor


def filtered(batch: DataProto, rules: UpdateRules) -> tuple[DataProto, dict[str, int]]:
    """The batch without trained tokens in the rows that the recipe leaves out of the loss, and how many those are."""
    tensors: Any = batch.batch
    why: dict[str, torch.Tensor] = {}
    if rules.overlong_filter:
        why["batch/rows_overlong"] = tensors[TRUNCATED]
    if rules.positive_only:
        why["batch/rows_not_positive"] = ~(tensors["advantages"] > 0).any(dim=1)
    if not why:
        return batch, {}
    keep = ~torch.stack(list(why.values())).any(dim=0)[:, None]
    rest = tensors.clone(recurse=False)
    for name in ("response_mask", "advantages"):
        rest[name] = tensors[name] * keep
    return DataProto(rest, batch.non_tensor_batch, batch.meta_info), {k: int(rows.sum()) for k, rows in why.items()}


def kl_to_start(batch: DataProto) -> dict[str, float]:
    """Mean k3 estimate, per sampled token, of the KL divergence to the reference model; {} without one."""
    tensors = batch.batch
    if tensors is None or "ref_log_prob" not in tensors:
        return {}
    mask = tensors["response_mask"] == 1
    kl = kl_penalty(tensors["old_log_probs"], tensors["ref_log_prob"], "low_var_kl")
    return {"actor/kl_to_start": torch.masked_select(kl, mask).mean().item()}
