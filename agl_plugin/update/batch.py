"""Rollouts -> the rows of a training batch: which tokens a row holds, and which of them the policy sampled.

Guarantees: the mask is 1 on exactly the tokens that the policy sampled, so the masked tokens of a rollout are the sum
of its responses, whatever the level; rows are as wide as the longest one needs, not as wide as the limits allow
(padding is computed like text on a CPU). Text only. agent-lightning's own merge differs in three cases: it trains
prompt tokens of an over-long later piece, copies a whole prompt where a turn adds no token, and cuts what a row cannot
hold.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from verl import DataProto

from agl_plugin.update.phases import Phases
from agl_plugin.update.rows import PREFIX_MISMATCH, TOO_LONG, Call, Limits, Row, rows_of_calls
from agl_plugin.update.rules import REWARD_STEPS, in_reward_steps

# The column that numbers the rows in the order of their rollouts: agent-lightning shuffles them without a seed.
ROW_NUMBER = "row_number"
# The column that marks the rows of rollouts with an answer that was cut at its limit of tokens.
TRUNCATED = "truncated"
# The columns of agl_plugin.update.phases, of rows that are a turn each.
EXPLORES, FAILED, WORTH = "explores", "failed", "worth"
# The column of rows that are imitated (agl_plugin.update.advantage).
IMITATED = "imitated"
# Joins the question's and the rollout's id in `uid`, for agl_plugin.update.advantage.
UID_SEPARATOR = "/"
Rollouts = Mapping[str, tuple[str, float, Sequence[Call]]]  # rollout id -> question id, reward, LLM calls in order


@dataclass(frozen=True)
class Batch:
    """verl's batch and what went into it; `rows` by rollout id, in the order of their numbers and not cut."""

    data: DataProto
    metrics: dict[str, float]
    rows: list[tuple[str, Row]]


def build_batch(
    rollouts: Rollouts,
    *,
    merge: bool,
    max_prompt_tokens: int,
    max_response_tokens: int,
    pad_id: int,
    phases: Mapping[str, Phases] | None = None,
) -> Batch:
    """Rows of all rollouts.

    Tensors, n rows, P and R the longest prompt and response: prompts n x P (padded left), responses and response_mask
    n x R (padded right), input_ids, attention_mask and position_ids n x (P + R), token_level_scores n x R float32 with
    the rollout's reward on the last token of each of its rows, is_drop_mask n (prompt over the limit, cut, or nothing
    left to train), row_number n, truncated n (an answer of the rollout was cut), rollout_log_probs n x R float32 where
    the sampler gave any: 0 where the mask is 0, NaN where it is 1 and the call came without them. With `phases` by
    rollout (and without `merge`): explores n, failed n, worth n x 1 float32.
    """
    limits = Limits(max_prompt_tokens, max_response_tokens)
    rows = [(i, row) for i, (*_, calls) in rollouts.items() for row in rows_of_calls(calls, merge=merge, limits=limits)]
    tensors = _token_tensors([row for _, row in rows], limits, pad_id)
    rewards = [in_reward_steps(rollouts[i][1]) / REWARD_STEPS for i, _ in rows]
    last = (tensors["attention_mask"][:, tensors["prompts"].shape[1] :].sum(1) - 1).clamp(min=0)
    scores = torch.zeros(tensors["responses"].shape, dtype=torch.float32)
    scores[torch.arange(len(rows)), last] = torch.tensor(rewards, dtype=torch.float32)
    is_cut = {i: any(call.finish_reason == "length" for call in calls) for i, (*_, calls) in rollouts.items()}
    tensors |= {
        "token_level_scores": scores,
        ROW_NUMBER: torch.arange(len(rows)),
        TRUNCATED: torch.tensor([is_cut[i] for i, _ in rows]),
    }
    tensors |= _phases(phases, rows)
    data = DataProto(batch=TensorDict(tensors, batch_size=len(rows)))  # pyright: ignore[reportArgumentType]
    uids = [f"{rollouts[i][0]}{UID_SEPARATOR}{i}" for i, _ in rows]
    data.non_tensor_batch["data_id_list"] = np.array(uids, dtype=object)
    data.non_tensor_batch["rollout_id_list"] = np.array([i for i, _ in rows], dtype=object)
    return Batch(data, _metrics(rollouts, rows, tensors), rows)


def _token_tensors(rows: list[Row], limits: Limits, pad_id: int) -> dict[str, torch.Tensor]:
    """What follows from each row's tokens alone, cut to the limits."""
    most_prompt, most_response = limits.prompt_tokens, limits.response_tokens
    prompts = _pad([row.prompt[:most_prompt][::-1] for row in rows], pad_id).flip(1)
    in_prompt = _pad([[1] * min(len(row.prompt), most_prompt) for row in rows], 0).flip(1)
    responses = _pad([row.response[:most_response] for row in rows], pad_id)
    in_response = _pad([[1] * min(len(row.response), most_response) for row in rows], 0)
    attention = torch.cat([in_prompt, in_response], dim=1)
    mask = _pad([row.mask[:most_response] for row in rows], 0)
    too_long = torch.tensor([len(row.prompt) > most_prompt for row in rows])
    tensors = {
        "prompts": prompts,
        "responses": responses,
        "input_ids": torch.cat([prompts, responses], dim=1),
        "attention_mask": attention,
        "position_ids": (attention.cumsum(1) - 1).clamp(min=0),
        "response_mask": mask,
        "is_drop_mask": too_long | (mask.sum(1) == 0),
    }
    return tensors | _sampler_log_probs([row.log_probs[:most_response] for row in rows], mask)


def _pad(rows: list[list[Any]], value: float) -> torch.Tensor:
    """n x longest, padded on the right; int64, or float32 where the values are floats."""
    width = max(1, *map(len, rows))
    dtype = torch.float32 if isinstance(value, float) else torch.long
    return torch.tensor([row + [value] * (width - len(row)) for row in rows], dtype=dtype)


def _phases(phases: Mapping[str, Phases] | None, rows: list[tuple[str, Row]]) -> dict[str, torch.Tensor]:
    """Of each row those of its turn."""
    if phases is None:
        return {}
    turns = {rollout: iter(zip(phase.explores, phase.failed, strict=True)) for rollout, phase in phases.items()}
    flags = torch.tensor([next(turns[rollout]) for rollout, _ in rows])
    worth = [[in_reward_steps(phases[rollout].worth) / REWARD_STEPS] for rollout, _ in rows]
    return {EXPLORES: flags[:, 0], FAILED: flags[:, 1], WORTH: torch.tensor(worth, dtype=torch.float32)}


def _sampler_log_probs(rows: list[list[float]], mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """`rollout_log_probs`, verl's name for what the sampler gave; nothing when it gave none."""
    log_probs = _pad(rows, 0.0)
    is_known = ~log_probs.isnan() & (mask == 1)
    return {"rollout_log_probs": torch.where(mask == 1, log_probs, 0.0)} if is_known.any() else {}


def _metrics(rollouts: Rollouts, rows: list[tuple[str, Row]], tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Counts of the batch; `trained_over_sampled` is 1 unless a row was cut or its prompt is over the limit."""
    calls = [call for *_, of_rollout in rollouts.values() for call in of_rollout]
    mask, attention = tensors["response_mask"], tensors["attention_mask"]
    trained = int(mask[~tensors["is_drop_mask"]].sum())
    rows_each = Counter(i for i, _ in rows)
    several = [i for i, (*_, of_rollout) in rollouts.items() if len(of_rollout) > 1]
    apart = Counter(row.why for _, row in rows)
    return {
        "batch/rollouts": len(rollouts),
        "batch/calls": len(calls),
        "batch/rows": len(rows),
        "batch/rows_per_rollout": len(rows) / len(rollouts),
        "batch/merged_share": sum(rows_each[i] == 1 for i in several) / max(1, len(several)),
        "batch/unmerged_prefix_mismatch": apart[PREFIX_MISMATCH],
        "batch/unmerged_too_long": apart[TOO_LONG],
        "batch/tokens": int(attention.sum()),
        "batch/trained_tokens": trained,
        "batch/trained_over_sampled": trained / max(1, sum(len(call.sampled) for call in calls)),
        "batch/rows_cut": sum(len(row.response) > mask.shape[1] for _, row in rows),
        "batch/calls_without_log_probs": sum(
            not call.log_probs or any(map(math.isnan, call.log_probs)) for call in calls
        ),
    }
