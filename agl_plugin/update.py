"""What happens to a batch between its advantages and the optimizer, on the trainer's side.

Guarantees: the number of optimizer steps of a training step follows from the questions (questions_per_step over
mini_batch_questions), not from how many rows their rollouts needed; the sampler is compared with the trainer, and
corrected where the recipe says so. How a worker cuts its share into equal parts is agl_plugin.actor's work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from verl import DataProto
from verl.trainer.ppo.core_algos import kl_penalty

from agl_plugin import sampler_gap
from agl_plugin.rules import MEASURE_CAP, N_UPDATES, UpdateRules

UpdateActor = Callable[[DataProto], Any]


def prepared(update: UpdateActor, rules: UpdateRules) -> UpdateActor:
    """verl's `update_actor`, on a prepared batch and with the metrics of the preparation."""

    def update_actor(batch: DataProto) -> Any:
        metrics: dict[str, float] = {}
        if rules.one_pass:
            sampler_gap.hide(batch)
            batch.meta_info[MEASURE_CAP] = rules.cap
        else:
            metrics = sampler_gap.correct(batch, cap=rules.cap, apply=rules.correct) | kl_to_start(batch)
        batch.meta_info[N_UPDATES] = rules.n_updates
        output = update(batch)
        output.meta_info["metrics"].update(metrics)
        return output

    return update_actor


def no_log_probs(batch: DataProto, *, temperature: float) -> DataProto:
    """In place of verl's `compute_log_prob`, where the update measures by itself: zeros, which it does not read.

    The sampling temperature goes with them: verl's update takes it from here.
    """
    tensors: Any = batch.batch
    zeros = torch.zeros(tensors["responses"].shape)
    tensors = {"old_log_probs": zeros, "entropys": zeros.clone()}
    return DataProto.from_dict(tensors, meta_info={"temperature": temperature})


def kl_to_start(batch: DataProto) -> dict[str, float]:
    """Mean k3 estimate, per sampled token, of the KL divergence to the reference model; {} without one."""
    tensors = batch.batch
    if tensors is None or "ref_log_prob" not in tensors:
        return {}
    mask = tensors["response_mask"] == 1
    kl = kl_penalty(tensors["old_log_probs"], tensors["ref_log_prob"], "low_var_kl")
    return {"actor/kl_to_start": torch.masked_select(kl, mask).mean().item()}
