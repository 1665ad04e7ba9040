"""What a rollout's tokens are worth: advantages over rollouts, not over rows.

verl's own estimators take each row for a rollout, so that one of three rows would count three times. Here they get one
entry per rollout; what they give goes to every token that the policy sampled in it. Guarantees: computed in float64;
rollouts that all earned the same have advantage 0 exactly (over their group, with reinforce++ over the step), and so
has a rollout that is alone.
  group           A = (r - mean) / (std + 1e-6) of the group: Shao et al. 2024 (DeepSeekMath, 4.1.2)
  group_no_std    A = r - mean: Liu et al. 2025 (Dr. GRPO)
  rloo            A = r - mean of the others in the group: Ahmadian et al. 2024 (REINFORCE leave-one-out)
  opo             A = r - mean weighed by trained tokens: Hao et al. 2025 (OPO)
  reinforce++     A = (r - mean) / (std + 1e-6) over all trained tokens of the step: Hu 2025 (REINFORCE++)
The first four are verl's functions. Its REINFORCE++ gives nothing to what stands before a tool's result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from verl import DataProto
from verl.trainer.ppo import core_algos

from agl_plugin.update.batch import EXPLORES, FAILED, IMITATED, UID_SEPARATOR, WORTH
from agl_plugin.update.rules import UpdateRules

# rewards, trained tokens and question of each rollout -> advantages
Estimate = Callable[[torch.Tensor, torch.Tensor, np.ndarray], torch.Tensor]
EPSILON = 1e-6


def of_verl(estimator: Callable[..., Any], **settings: Any) -> Estimate:
    """A group's estimator of verl, which gets one row per rollout."""

    def estimate(rewards: torch.Tensor, n_tokens: torch.Tensor, questions: np.ndarray) -> torch.Tensor:
        mask = (torch.arange(max(1, int(n_tokens.max()))) < n_tokens[:, None]).double()
        values, _ = estimator(rewards[:, None], mask, questions, epsilon=EPSILON, **settings)
        sizes = Counter(questions)
        return values[:, 0] * torch.tensor([sizes[question] > 1 for question in questions])

    return estimate


def whitened(rewards: torch.Tensor, n_tokens: torch.Tensor, questions: np.ndarray) -> torch.Tensor:
    """Distance to the mean of the step in deviations, with each rollout as often as it has trained tokens."""
    total = n_tokens.sum()
    distance = rewards - (rewards * n_tokens).sum() / total
    variance = (distance.square() * n_tokens).sum() / (total - 1).clamp(min=1)
    return distance / (variance.sqrt() + EPSILON)


ESTIMATES: dict[str, Estimate] = {
    "group": of_verl(core_algos.compute_grpo_outcome_advantage),
    "group_no_std": of_verl(core_algos.compute_grpo_outcome_advantage, norm_adv_by_std_in_grpo=False),
    "rloo": of_verl(core_algos.compute_rloo_outcome_advantage),
    "opo": of_verl(core_algos.compute_opo_outcome_advantage),
    "reinforce++": whitened,
}


def over_rollouts(
    advantage: str, token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: np.ndarray
) -> torch.Tensor:
    """Advantages by the estimate of that name, rows x tokens.

    `index` holds "question/rollout" per row; rows of one rollout carry the same reward.
    """
    rollouts, rollout_of_row = numbered(index)
    rewards, n_tokens = torch.zeros(2, len(rollouts), dtype=torch.float64)
    rewards[rollout_of_row] = token_level_rewards.sum(dim=-1).double().cpu()
    n_tokens.index_add_(0, rollout_of_row, response_mask.sum(dim=-1).double().cpu())
    questions = np.array([uid.partition(UID_SEPARATOR)[0] for uid in rollouts], dtype=object)
    values = ESTIMATES[advantage](rewards, n_tokens, questions)[rollout_of_row].float().to(response_mask.device)
    return values[:, None] * response_mask


def numbered(index: np.ndarray) -> tuple[list[str], torch.Tensor]:
    """The rollouts of rows in order, and of each row the place of its rollout in them."""
    places = {uid: n for n, uid in enumerate(dict.fromkeys(index))}
    return list(places), torch.tensor([places[uid] for uid in index])


def add_advantages(batch: DataProto, advantage: str, rules: UpdateRules) -> None:
    """Set `advantages`, by the estimate of that name.

    With `rules.credit` phases, turns that explored have the estimate of what exploring was worth. `rules.turn_shaping`
    takes that much from turns with a failed call, and gives each trained token of the rollout its share of it back, so
    that an episode's shaping is 0 over its tokens.
    """
    tensors: Any = batch.batch
    mask, index = tensors["response_mask"], batch.non_tensor_batch["data_id_list"]
    advantages = over_rollouts(advantage, tensors["token_level_scores"], mask, index)
    if rules.credit == "phases":
        explored = over_rollouts(advantage, tensors[WORTH], mask, index)
        advantages = torch.where(tensors[EXPLORES][:, None], explored, advantages)
    if rules.turn_shaping:
        advantages = advantages + rules.turn_shaping * shaping(tensors[FAILED], mask, index)
    tensors["advantages"] = advantages
    if rules.imitation:
        tensors[IMITATED] = imitated(tensors["token_level_scores"].sum(dim=-1), index, rules.imitated_from)


def imitated(rewards: torch.Tensor, index: np.ndarray, least: float) -> torch.Tensor:
    """Which rows, n bool, are of a rollout that earned at least that, in a group where another did not."""
    good = (rewards >= least).tolist()
    questions = [uid.partition(UID_SEPARATOR)[0] for uid in index]
    failed = {question for question, well in zip(questions, good, strict=True) if not well}
    return torch.tensor([well and question in failed for question, well in zip(questions, good, strict=True)])


def shaping(failed: torch.Tensor, mask: torch.Tensor, index: np.ndarray) -> torch.Tensor:
    """-1 on the trained tokens of failed turns, less the mean of that over the trained tokens of their rollout."""
    rollouts, rollout_of_row = numbered(index)
    n_tokens, penalty = mask.sum(dim=-1).double().cpu(), -failed.double().cpu()
    sums, whole = torch.zeros(2, len(rollouts), dtype=torch.float64)
    sums.index_add_(0, rollout_of_row, penalty * n_tokens)
    whole.index_add_(0, rollout_of_row, n_tokens)
    values = penalty - (sums / whole.clamp(min=1))[rollout_of_row]
    return values.float().to(mask.device)[:, None] * mask
