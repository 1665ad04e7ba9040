"""What happens to a batch between its advantages and the optimizer, on the trainer's side.

Guarantees: the number of optimizer steps of a training step follows from the questions (questions_per_step over
mini_batch_questions), not from how many rows their rollouts needed; rows that cannot change a weight are not computed,
and the others count as they would beside them; the sampler is compared with the trainer, and corrected where the recipe
says so. How a worker cuts its share into equal parts is agl_plugin.update.actor's work.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from verl import DataProto
from verl.trainer.ppo.core_algos import kl_penalty

from agl_plugin.update import sampler_gap
from agl_plugin.update.rules import MEASURE_CAP, N_UPDATES, STEP_OVER_BATCH, UpdateRules

ENTROPY = "actor/entropy_loss"
UpdateActor = Callable[[DataProto], Any]


def prepared(update: UpdateActor, rules: UpdateRules, *, n_ranks: int = 1) -> UpdateActor:
    """verl's `update_actor`, on a prepared batch and with the metrics of the preparation.

    The number of rows must be a multiple of `n_ranks`, and stays one.
    """

    def update_actor(batch: DataProto) -> Any:
        metrics: dict[str, float] = {}
        if rules.one_pass:
            sampler_gap.hide(batch)
            batch.meta_info[MEASURE_CAP] = rules.cap
        else:
            metrics = sampler_gap.correct(batch, cap=rules.cap, apply=rules.correct) | kl_to_start(batch)
        batch.meta_info[N_UPDATES] = rules.n_updates
        if not rules.advantage_decides or (rules.one_pass and not sampler_gap.knows_all(batch)):
            output = update(batch)
        else:
            kept, left_out = split(batch, multiple_of=n_ranks)
            metrics["batch/rows_left_out"] = len(left_out)
            output = update(kept)
            if rules.one_pass:
                entropy = float(np.mean(output.meta_info["metrics"][ENTROPY]))
                metrics[ENTROPY] = entropy_of_all(entropy, kept, left_out)
        output.meta_info["metrics"].update(metrics)
        return output

    return update_actor


def split(batch: DataProto, *, multiple_of: int) -> tuple[DataProto, DataProto]:
    """The rows with an advantage, in their order, filled up with others to a multiple of `multiple_of`; and the rest.

    A group without variance has no advantage, and a fifth of a step's groups may be such. The first part says how many
    trained tokens the step has for each one in it.
    """
    tensors: Any = batch.batch
    has_none = (tensors["advantages"] == 0).all(dim=1)
    n_kept = max(1, math.ceil(int((~has_none).sum()) / multiple_of)) * multiple_of
    order = torch.argsort(has_none.int(), stable=True)
    kept, left_out = (batch.select_idxs(rows.sort().values) for rows in (order[:n_kept], order[n_kept:]))
    kept.meta_info = {**batch.meta_info, STEP_OVER_BATCH: max(1, n_trained(batch)) / max(1, n_trained(kept))}
    return kept, left_out


def n_trained(batch: DataProto) -> int:
    """Tokens that the policy sampled."""
    tensors: Any = batch.batch
    return int(tensors["response_mask"].sum())


def entropy_of_all(entropy: float, kept: DataProto, left_out: DataProto) -> float:
    """Mean entropy per trained token of a step, from that of the rows of the update.

    Where the update did not go, minus the log-probability of a sampled token estimates the entropy at its place.
    """
    tensors: Any = left_out.batch
    estimated = -(tensors[sampler_gap.HIDDEN_LOG_PROBS] * tensors["response_mask"]).sum().item()
    n_kept, n_left_out = n_trained(kept), n_trained(left_out)
    return (entropy * n_kept + estimated) / max(1, n_kept + n_left_out)


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
