"""Rollouts -> the rows of a training batch: which tokens a row holds, and which of them the policy sampled.

Guarantees: the mask is 1 on exactly the tokens that the policy sampled, so the masked tokens of a rollout are the sum
of its responses, whatever the level; rows are as wide as the longest one needs, not as wide as the limits allow
(padding is computed like text on a CPU). Text only. agent-lightning's own merge differs in two cases: it trains prompt
tokens of an over-long later piece, and copies a whole prompt where a turn adds no token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from agentlightning.types import Triplet
from tensordict import TensorDict
from verl import DataProto

# Rewards are kept in steps of 2^-16, so that the mean of equal rewards is exactly that reward in float32 (groups of up
# to 119 rows): otherwise rounding gives a group without variance advantages of up to 0.2.
REWARD_STEPS = 65536
# Joins the question's and the rollout's id in `uid`, for agl_plugin.advantage.
UID_SEPARATOR = "/"


@dataclass
class Row:
    """One training row. `mask` has the length of `response`: 1 where the policy sampled the token."""

    prompt: list[int]
    response: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)

    def add(self, context: Sequence[int], sampled: Sequence[int]) -> None:
        """Append what the environment wrote, then what the policy sampled after it."""
        self.response += [*context, *sampled]
        self.mask += [0] * len(context) + [1] * len(sampled)


def turns_of(triplets: Sequence[Triplet]) -> list[tuple[list[int], list[int]]]:
    """(prompt ids, response ids) of each LLM call, in order."""
    return [(list(t.prompt.get("token_ids") or []), list(t.response.get("token_ids") or [])) for t in triplets]


def rows_of(triplets: Sequence[Triplet], *, merge: bool) -> list[Row]:
    """One row per LLM call; with `merge`, calls whose prompt continues the row so far share it.

    A prompt that does not begin with exactly the tokens so far (the chat template wrote the history otherwise than the
    policy did) starts a row of its own.
    """
    rows: list[Row] = []
    for prompt, sampled in turns_of(triplets):
        so_far = rows[-1].prompt + rows[-1].response if rows and merge else None
        if so_far is not None and prompt[: len(so_far)] == so_far:
            rows[-1].add(prompt[len(so_far) :], sampled)
        else:
            rows.append(Row(prompt))
            rows[-1].add([], sampled)
    return rows


@dataclass(frozen=True)
class Batch:
    """verl's batch and what went into it."""

    data: DataProto
    metrics: dict[str, float]


def build_batch(
    rollouts: dict[str, tuple[str, float, Sequence[Triplet]]],
    *,
    merge: bool,
    max_prompt_tokens: int,
    max_response_tokens: int,
    pad_id: int,
    device: torch.device,
) -> Batch:
    """Rows of all rollouts (rollout id -> question id, reward, triplets).

    Tensors, n rows, P and R the longest prompt and response: prompts n x P (padded left), responses and response_mask
    n x R (padded right), input_ids, attention_mask and position_ids n x (P + R), token_level_scores n x R float32 with
    the rollout's reward on the last token of each of its rows, is_drop_mask n (prompt over the limit, cut).
    """
    rows = [(i, row) for i, (_, _, triplets) in rollouts.items() for row in rows_of(triplets, merge=merge)]
    prompts = _pad([row.prompt[:max_prompt_tokens][::-1] for _, row in rows], pad_id).flip(1)
    in_prompt = _pad([[1] * min(len(row.prompt), max_prompt_tokens) for _, row in rows], 0).flip(1)
    responses = _pad([row.response[:max_response_tokens] for _, row in rows], pad_id)
    in_response = _pad([[1] * min(len(row.response), max_response_tokens) for _, row in rows], 0)
    attention = torch.cat([in_prompt, in_response], dim=1)
    rewards = [round(rollouts[i][1] * REWARD_STEPS) / REWARD_STEPS for i, _ in rows]
    scores = torch.zeros(responses.shape, dtype=torch.float32)
    scores[torch.arange(len(rows)), (in_response.sum(1) - 1).clamp(min=0)] = torch.tensor(rewards, dtype=torch.float32)
    mask = _pad([row.mask[:max_response_tokens] for _, row in rows], 0)
    tensors = {
        "prompts": prompts,
        "responses": responses,
        "input_ids": torch.cat([prompts, responses], dim=1),
        "attention_mask": attention,
        "position_ids": (attention.cumsum(1) - 1).clamp(min=0),
        "response_mask": mask,
        "is_drop_mask": torch.tensor([len(row.prompt) > max_prompt_tokens for _, row in rows]),
        "token_level_scores": scores,
    }
    data = DataProto(batch=TensorDict({k: v.to(device) for k, v in tensors.items()}, batch_size=len(rows)))  # pyright: ignore[reportArgumentType]
    uids = [f"{rollouts[i][0]}{UID_SEPARATOR}{i}" for i, _ in rows]
    data.non_tensor_batch["data_id_list"] = np.array(uids, dtype=object)
    data.non_tensor_batch["rollout_id_list"] = np.array([i for i, _ in rows], dtype=object)
    return Batch(data, _metrics(rollouts, [row for _, row in rows], mask=mask, attention=attention))


def _pad(rows: list[list[int]], value: int) -> torch.Tensor:
    """n x longest, padded on the right."""
    width = max(1, *map(len, rows))
    return torch.tensor([row + [value] * (width - len(row)) for row in rows], dtype=torch.long)


def _metrics(
    rollouts: dict[str, tuple[str, float, Sequence[Triplet]]],
    rows: list[Row],
    *,
    mask: torch.Tensor,
    attention: torch.Tensor,
) -> dict[str, Any]:
    """Counts of the batch; `trained_over_sampled` is 1 unless a row was cut at the limit."""
    calls = [turn for _, _, triplets in rollouts.values() for turn in turns_of(triplets)]
    sampled = sum(len(response) for _, response in calls)
    return {
        "batch/rollouts": len(rollouts),
        "batch/calls": len(calls),
        "batch/rows": len(rows),
        "batch/rows_per_rollout": len(rows) / len(rollouts),
        "batch/tokens": int(attention.sum()),
        "batch/trained_tokens": int(mask.sum()),
        "batch/trained_over_sampled": int(mask.sum()) / max(1, sampled),
        "batch/rows_cut": sum(len(row.response) > mask.shape[1] for row in rows),
    }
