"""The branch that GPUs run, here on two ranks of a CPU, against the loss written out by hand on one whole model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from agl_plugin.update.plan import partition
from tests import gpu_branch
from tests.actor import tiny_model
from tests.gpu_branch import CLIP_HIGH, CLIP_LOW, ENTROPY, KL, LR, STEP, TEMPERATURE

pytestmark = pytest.mark.slow  # two processes that import verl, twice
N_STEPS = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("two_ranks")
    gpu_branch.adapter_of(where, tiny_model(vocabulary=40).float())
    return where


def scores(model: Any, data: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies, rows x response."""
    tensors = data.batch
    inputs = {name: tensors[name] for name in ("input_ids", "attention_mask", "position_ids")}
    width = tensors["responses"].size(1)
    every = torch.log_softmax(model(**inputs).logits[:, -width - 1 : -1].float() / TEMPERATURE, dim=-1)
    return every.gather(-1, tensors["responses"][..., None])[..., 0], -(every.exp() * every).sum(dim=-1)


def by_hand(adapter: Path) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], torch.Tensor]:
    """The adapter before and after two steps of plain gradient descent, and the log-probabilities before them."""
    model, data = gpu_branch.policy(adapter), gpu_branch.batch()
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    start = {name: weight.detach().clone() for name, weight in weights.items()}
    with torch.no_grad():
        old, _ = scores(model, data)
        with model.disable_adapter():
            reference, _ = scores(model, data)
    advantages, mask = data.batch["advantages"], data.batch["response_mask"]
    for rows in partition(len(data), n_updates=N_STEPS, seed=f"1/{STEP}"):
        log_probs, entropies = scores(model, data)
        ratio = (log_probs - old).exp()
        clipped = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH))
        policy = torch.where(advantages < 0, torch.minimum(-3 * advantages, clipped), clipped)
        away = reference - log_probs
        loss = (policy + KL * (away.exp() - away - 1) - ENTROPY * entropies) * mask
        (N_STEPS * loss[rows].sum() / mask.sum()).backward()
        with torch.no_grad():
            for weight in weights.values():
                assert weight.grad is not None
                weight -= LR * weight.grad
                weight.grad = None
    return start, {name: weight.detach() for name, weight in weights.items()}, old * mask


@pytest.mark.parametrize("kind", gpu_branch.KINDS)
@pytest.mark.parametrize(("dtype", "tolerance", "gap"), [("float32", 1e-4, 1e-5), ("bfloat16", 0.1, 0.05)])
def test_two_ranks_move_the_adapter_as_the_loss_says(
    folder: Path, dtype: str, tolerance: float, gap: float, kind: str
) -> None:
    first, second = gpu_branch.train_on_two_ranks(folder, dtype=dtype, kind=kind)
    start, expected, old = by_hand(folder / "adapter")
    assert first["weights"].keys() == expected.keys() == second["weights"].keys()
    moved, meant = (
        torch.cat([(weights[name] - start[name]).flatten() for name in start])
        for weights in (first["weights"], expected)
    )
    assert meant.norm() > 1e-2 and (moved - meant).norm() / meant.norm() < tolerance
    assert all(torch.equal(first["weights"][name], second["weights"][name]) for name in start)
    assert first["old"].dtype == torch.float32
    assert (first["old"] - old).abs().max() < gap  # where no token is trained, 0
    assert first["metrics"]["actor/updates"] == second["metrics"]["actor/updates"] == N_STEPS
    assert first["metrics"]["actor/updates_without_signal"] == 0 and first["metrics"]["batch/rows_left_out"] == 0
