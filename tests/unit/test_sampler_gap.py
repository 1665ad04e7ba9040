"""The gap between sampler and trainer, against formulas written out here; and what reaches verl's loss."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict
from verl import DataProto

from agl_plugin.update.rules import PLAN, UpdateRules
from agl_plugin.update.sampler_gap import correct
from tests import updates

NAN = math.nan
LOG_PROB = st.floats(-6, -1 / 128, width=32)
PAIRS = st.lists(st.tuples(LOG_PROB, LOG_PROB, st.booleans()), min_size=2, max_size=12)


def rules(correction: Any = "off", *, cap: float = 2.0, level: Any = "token") -> UpdateRules:
    return UpdateRules(n_updates=1, cap=cap, correction=correction, level=level)


def batch_of(trainer: list[list[float]], sampler: list[list[float]], mask: list[list[int]]) -> DataProto:
    tensors = {
        "old_log_probs": torch.tensor(trainer),
        "rollout_log_probs": torch.tensor(sampler),
        "response_mask": torch.tensor(mask),
        "advantages": torch.tensor(mask).float(),
        "attention_mask": torch.tensor(mask),
        "row_number": torch.arange(len(mask)),
    }
    return DataProto(batch=TensorDict(tensors, batch_size=len(trainer)))  # pyright: ignore[reportArgumentType]


@settings(deadline=None)
@given(pairs=PAIRS.filter(lambda pairs: any(on for _, _, on in pairs)), cap=st.sampled_from([1.1, 2.0, 5.0]))
def test_the_figures_are_their_formulas(pairs: list[tuple[float, float, bool]], cap: float) -> None:
    trainer, sampler, mask = ([list(column)] for column in zip(*pairs, strict=True))
    metrics = correct(batch_of(trainer, sampler, [[int(on) for on in mask[0]]]), rules(cap=cap))
    known = [(np.float64(p), np.float64(q)) for p, q, on in pairs if on]
    d = np.array([p - q for p, q in known])
    r = np.exp(d)
    w = np.clip(r, 1 / cap, cap)
    expected = {
        "sampler/log_prob_diff_mean": np.abs(d).mean(),
        "sampler/log_prob_diff_max": np.abs(d).max(),
        "sampler/kl_k1": -d.mean(),
        "sampler/kl_k3": (r - 1 - d).mean(),
        "sampler/effective_sample_share": 1 / ((w / w.mean()) ** 2).mean(),
        "sampler/weight_mean": np.minimum(r, cap).mean(),
    }
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value, rel=1e-3, abs=1e-4), name
    outside = np.mean((r > cap * 1.001) | (r < 0.999 / cap)), np.mean((r > cap * 0.999) | (r < 1.001 / cap))
    assert outside[0] - 1e-6 <= metrics["sampler/outside_share"] <= outside[1] + 1e-6


def test_equal_log_probabilities_have_no_gap() -> None:
    metrics = correct(batch_of([[-1.0, -2.0]], [[-1.0, -2.0]], [[1, 1]]), rules(cap=2.0))
    assert metrics["sampler/log_prob_diff_max"] == 0 and metrics["sampler/effective_sample_share"] == pytest.approx(1)
    assert metrics["sampler/outside_share"] == 0 and metrics["sampler/kl_k3"] == 0


def test_weights_are_capped_ratios_of_sampled_tokens() -> None:
    batch = batch_of([[-1.0, -1.0, -1.0, -1.0]], [[-1.5, -3.0, -0.5, NAN]], [[1, 1, 1, 1]])
    correct(batch, rules("truncated", cap=2.0))
    assert batch.batch["rollout_is_weights"].tolist() == [
        [pytest.approx(math.exp(0.5)), 2.0, pytest.approx(math.exp(-0.5)), 1.0]
    ]
    masked = batch_of([[-1.0, 0.0]], [[-1.5, 0.0]], [[1, 0]])
    correct(masked, rules("truncated", cap=2.0))
    assert masked.batch["rollout_is_weights"][0, 1] == 0


def test_a_token_without_log_probability_counts_in_no_figure() -> None:
    metrics = correct(batch_of([[-1.0, -9.0]], [[-1.25, NAN]], [[1, 1]]), rules(cap=2.0))
    assert metrics["sampler/log_prob_diff_mean"] == 0.25


@pytest.mark.parametrize("apply", [True, False])
def test_the_actor_never_sees_the_samplers_numbers(apply: bool) -> None:
    batch = batch_of([[-1.0]], [[-2.0]], [[1]])
    correct(batch, rules("truncated" if apply else "off"))
    assert "rollout_log_probs" not in batch.batch and ("rollout_is_weights" in batch.batch) is apply


def test_a_batch_without_the_samplers_numbers_is_left_alone() -> None:
    batch = batch_of([[-1.0]], [[NAN]], [[1]])
    assert correct(batch, rules("truncated", cap=2.0)) == {} and "rollout_is_weights" not in batch.batch
    assert correct(batch, rules("truncated", cap=2.0)) == {}


def updated(batch: DataProto, **more: Any) -> tuple[DataProto, dict[str, Any]]:
    """What an update gets, and what it reports."""
    seen: list[DataProto] = []

    def update(data: DataProto) -> Any:
        seen.append(data)
        return {**updates.TOLD, "actor/grad_norm": [1.0]}

    given = UpdateRules(**{"n_updates": 2, "correction": "truncated", "cap": 2.0, **more})
    metrics, _ = updates.step(update, batch, given)
    return seen[0], metrics


def test_an_update_gets_weights_and_plan_and_reports_the_gap() -> None:
    data, metrics = updated(batch_of([[-1.0]], [[-2.0]], [[1]]))
    assert data.batch["rollout_is_weights"].tolist() == [[2.0]] and len(data.meta_info[PLAN].sizes) == 2
    assert metrics["sampler/log_prob_diff_mean"] == 1.0 and metrics["actor/grad_norm"] == [1.0]
    assert "actor/kl_to_start" not in metrics
    assert "rollout_is_weights" not in updated(batch_of([[-1.0]], [[-2.0]], [[1]]), correction="off")[0].batch


def test_with_a_reference_model_its_distance_is_told() -> None:
    batch = batch_of([[-1.0, -2.0, 0.0]], [[-1.0, -2.0, 0.0]], [[1, 1, 0]])
    batch.batch["ref_log_prob"] = torch.tensor([[-1.5, -2.0, -7.0]])
    _, metrics = updated(batch)
    d = np.array([-0.5, 0.0])  # reference minus trainer, on the sampled tokens
    assert metrics["actor/kl_to_start"] == pytest.approx((np.exp(d) - 1 - d).mean(), rel=1e-4)
