"""The losses of `optim.loss`, in the real worker: what they weigh does not depend on micro batches.

verl's geo_mean does depend on them; that is why it has no name there.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from verl.workers.config import PolicyLossConfig

from agl_plugin.update.batch import build_batch
from agl_plugin.update.rows import NAN, Call
from tests.actor import actor_of, as_planned, flat_weights, tiny_model, with_advantages

pytestmark = pytest.mark.usefixtures("rank")

# Question, reward, response: five rows of different lengths, and a group without variance.
ROLLOUTS = [
    *[("q", 1.0, [4, 5, 8, 10, 11]), ("q", 0.0, [5]), ("q", 0.25, [7, 7, 1])],
    *[("p", 0.5, [1, 5, 9, 6]), ("p", 0.6, [1, 2])],
    *[("flat", 0.3, [2] * 9), ("flat", 0.3, [3])],
]
ROW_TOKENS = 30
MODES = ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]


def step_of(*, micro_rows: int, leave_out: bool = False, mode: str = "vanilla", **more: Any) -> torch.Tensor:
    """How the weights move in one training step of ROLLOUTS."""
    rollouts = {
        str(i): (question, reward, [Call([1, 2], ids, [NAN] * len(ids))])
        for i, (question, reward, ids) in enumerate(ROLLOUTS)
    }
    limits: dict[str, Any] = {"max_prompt_tokens": 30, "max_response_tokens": 30, "pad_id": 0}
    data = with_advantages(build_batch(rollouts, merge=True, **limits).data)
    data.meta_info |= {"micro_batch_size": 9}
    data.batch["old_log_probs"], _ = actor_of(tiny_model(), micro_rows=9).compute_log_prob(data)
    model = tiny_model()
    before = flat_weights(model)
    actor = actor_of(model, micro_rows=micro_rows, policy_loss=PolicyLossConfig(loss_mode=mode), lr=0.01, **more)
    actor.update_policy(data=as_planned(data, leave_out=leave_out, row_tokens=ROW_TOKENS))
    return flat_weights(model) - before


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    assert b.norm() > 1e-6
    return ((a - b).norm() / b.norm()).item()


@pytest.mark.parametrize(
    "more",
    [
        *({"loss_agg_mode": mode} for mode in MODES),
        *({"mode": mode} for mode in ("gspo", "gpg", "cispo", "minirl")),
        {"ppo_epochs": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("leave_out", [False, True])
@pytest.mark.parametrize("micro_rows", [1, 2, 3])
def test_a_step_is_the_same_whatever_the_micro_batches_and_without_rows_that_teach_nothing(
    more: dict[str, Any], leave_out: bool, micro_rows: int
) -> None:
    assert distance(step_of(micro_rows=micro_rows, leave_out=leave_out, **more), step_of(micro_rows=7, **more)) < 1e-5


def test_the_modes_weigh_differently() -> None:
    steps = [step_of(micro_rows=7, loss_agg_mode=mode) for mode in MODES[:3]]
    assert all(distance(a, b) > 0.05 for a in steps for b in steps if a is not b)
    assert distance(step_of(micro_rows=7, ppo_epochs=2), steps[0]) > 0.5


def test_the_mean_over_rows_is_that_of_the_rows() -> None:
    """seq-mean-token-sum is token-mean times tokens per row; -norm divides it by what a row may hold."""
    token_mean, row_sum, norm = (step_of(micro_rows=2, loss_agg_mode=MODES[i]) for i in (0, 2, 3))
    lengths = [len(ids) for _, _, ids in ROLLOUTS]
    assert distance(row_sum, token_mean * sum(lengths) / len(lengths)) < 1e-5
    assert distance(norm, row_sum / ROW_TOKENS) < 1e-5


def test_geo_mean_depends_on_the_micro_batches() -> None:
    assert distance(step_of(micro_rows=2, mode="geo_mean"), step_of(micro_rows=7, mode="geo_mean")) > 0.01
