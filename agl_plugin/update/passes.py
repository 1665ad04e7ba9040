"""Log-probabilities and updates, as the loop and the replay ask workers for them.

Guarantees: rows come and go padded, as agl_plugin.update.batch makes them, whatever their number and the number of
ranks; in between they are as verl's engines take them, without padding.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from verl import DataProto
from verl.protocol import pad_dataproto_to_divisor
from verl.trainer.ppo.utils import need_reference_policy
from verl.utils import tensordict_utils as tu

from agl_plugin.update.batch import IMITATED
from agl_plugin.update.plan import micro_batches
from agl_plugin.update.prepare import needs_pass
from agl_plugin.update.rules import CUTS, PLAN, Plan, UpdateRules
from agl_plugin.update.sampler_gap import SAMPLER_LOG_PROBS, WEIGHTS

# What the workers read of a batch's tensors, besides `input_ids` and `position_ids`.
READ = (
    *("prompts", "responses", "attention_mask", "response_mask"),
    *("old_log_probs", "advantages", "ref_log_prob", IMITATED, SAMPLER_LOG_PROBS, WEIGHTS),
)


def unpadded(batch: DataProto, **settings: Any) -> TensorDict:
    """The batch as verl's engines take it: tokens without padding, a row after the other; the rest as it is."""
    tensors: Any = batch.batch
    mask = tensors["attention_mask"].bool()
    offsets = torch.nn.functional.pad(mask.sum(dim=1).cumsum(dim=0), (1, 0))
    rows: Any = {
        name: torch.nested.nested_tensor_from_jagged(tensors[name][mask], offsets)
        for name in ("input_ids", "position_ids")
    }
    rows |= {name: tensors[name] for name in READ if name in tensors}
    rows["loss_mask"] = tensors["response_mask"]
    return tu.get_tensordict(rows, {**settings, PLAN: batch.meta_info.get(PLAN)})


class Passes:
    """Log-probabilities and updates of a group of workers, or of the only one, in this process. `config` is verl's."""

    def __init__(self, group: Any, config: Any, *, n_ranks: int = 1) -> None:
        self._group, self._config, self.n_ranks = group, config.actor_rollout_ref, n_ranks
        self.has_reference, self.has_adapter = need_reference_policy(config), has_adapter(config)

    def log_probs(self, batch: DataProto, rules: UpdateRules) -> DataProto:
        """The batch, which has advantages, with `old_log_probs` and `entropys`, rows x response, where the update's own
        pass does not give them."""
        if not needs_pass(batch, rules, epochs=self._config.actor.ppo_epochs):
            return batch
        scored = self._scored(batch, rules, self._group.compute_log_prob, calculate_entropy=True)
        scores: Any = {"old_log_probs": scored["log_probs"], "entropys": scored["entropy"]}
        return batch.union(DataProto.from_single_dict(scores))

    def reference_log_probs(self, batch: DataProto, rules: UpdateRules) -> DataProto:
        """The batch with `ref_log_prob`, of the start model, rows x response: with LoRA the actor without its
        adapter."""
        work = self._group.compute_log_prob if self.has_adapter else self._group.compute_ref_log_prob
        scored = self._scored(batch, rules, work, calculate_entropy=False, no_lora_adapter=self.has_adapter)
        return batch.union(DataProto.from_single_dict({"ref_log_prob": scored["log_probs"]}))

    def _scored(self, batch: DataProto, rules: UpdateRules, work: Any, **settings: Any) -> dict[str, torch.Tensor]:
        """As in a Plan, ranks take turns in order of length."""
        whole, n_added = pad_dataproto_to_divisor(batch, self.n_ranks)
        tensors: Any = whole.batch
        n_tokens = tensors["attention_mask"].sum(dim=1)
        limit = rules.micro_batch_tokens
        by_rank = n_tokens.argsort(stable=True).view(-1, self.n_ranks).T
        cuts = micro_batches(n_tokens[by_rank[-1]].tolist(), limit) if limit else None
        order = by_rank.flatten()
        output = work(self._request(whole.select_idxs(order), compute_loss=False, **settings | {CUTS: cuts}))
        width = tensors["responses"].shape[1]
        back = order.argsort()[: len(whole) - n_added]
        names = [name for name in ("log_probs", "entropy") if name in output]
        return {name: output[name].values().reshape(-1, width)[back] for name in names}

    def update(self, batch: DataProto) -> list[dict[str, Any]]:
        """What each worker tells of its optimizer steps, which the Plan in the batch makes."""
        actor = self._config.actor
        plan: Plan = batch.meta_info[PLAN]
        with_entropy = actor.entropy_coeff != 0 or plan.only_pass
        request = self._request(
            batch, calculate_entropy=with_entropy, epochs=actor.ppo_epochs, return_model_output=plan.only_pass
        )
        metrics = self._group.update_actor(request)
        return metrics if isinstance(metrics, list) else [metrics]

    def _request(self, batch: DataProto, **settings: Any) -> TensorDict:
        return unpadded(batch, temperature=float(self._config.rollout.temperature), **settings)


def has_adapter(config: Any) -> bool:
    """Whether the policy is a LoRA adapter, without which the actor is the reference."""
    model = config.actor_rollout_ref.model
    return model.get("lora_rank", 0) > 0 or model.get("lora_adapter_path") is not None
