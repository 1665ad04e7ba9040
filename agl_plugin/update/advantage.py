"""GRPO's group-relative advantage over rollouts, not over rows.

verl's own estimator takes the mean and the standard deviation over the rows of a group, so that a rollout of three rows
counts three times. Here each rollout counts once; its advantage goes to every token that the policy sampled in it.
Formula: A = (r - mean(group)) / (std(group) + 1e-6), Shao et al. 2024 (DeepSeekMath, 4.1.2); without the division when
`algorithm.norm_adv_by_std_in_grpo` is off (Liu et al. 2025, Dr. GRPO).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import register_adv_est

from agl_plugin.update.batch import UID_SEPARATOR

NAME = "grpo_rollouts"
EPSILON = 1e-6


@register_adv_est(NAME)
def rollout_advantage(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: np.ndarray, config: Any = None, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and returns, rows x tokens each (equal, as in verl's GRPO).

    `index` holds "question/rollout" per row; rows of one rollout carry the same reward.
    """
    rewards = token_level_rewards.sum(dim=-1)
    groups: dict[str, dict[str, float]] = defaultdict(dict)
    for uid, reward in zip(index, rewards.tolist(), strict=True):
        groups[uid.partition(UID_SEPARATOR)[0]][uid] = reward
    by_std = config is None or config.get("norm_adv_by_std_in_grpo", True)
    values: dict[str, float] = {}
    for members in groups.values():
        all_rewards = torch.tensor(list(members.values()), dtype=torch.float64)
        std = all_rewards.std().item() if by_std and len(members) > 1 else 1.0
        mean = all_rewards.mean().item()
        values |= {uid: (reward - mean) / (std + EPSILON if by_std else 1.0) for uid, reward in members.items()}
    advantages = torch.tensor([values[uid] for uid in index], dtype=torch.float32, device=rewards.device)
    advantages = advantages[:, None] * response_mask
    return advantages, advantages
