"""Log-probabilities and entropies of bfloat16 logits over Qwen's vocabulary, against float64."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch

os.environ.setdefault("AGENTGRPO_CPU", "1")
from agl_plugin.update import token_scores as module
from agl_plugin.update.token_scores import token_scores

N_WORDS, N_TOKENS, TEMPERATURE = 151_936, 24, 0.7


@pytest.fixture(scope="module")
def logits() -> torch.Tensor:
    """Of a policy that is sure of some tokens and unsure of others, as a bfloat16 pass gives them."""
    generator = torch.Generator().manual_seed(0)
    given = torch.randn(N_TOKENS, N_WORDS, generator=generator) * 2
    given[torch.arange(N_TOKENS), torch.arange(N_TOKENS)] += torch.linspace(0, 30, N_TOKENS)
    return given.bfloat16()


TOKENS = torch.arange(N_TOKENS)


def exact(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """In float64, by the definitions."""
    every = torch.log_softmax(logits.double() / TEMPERATURE, dim=-1)
    return every[torch.arange(N_TOKENS), TOKENS], -(every.exp() * every).sum(dim=-1)


def scored(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    log_probs, entropies = token_scores(logits, TOKENS, temperature=TEMPERATURE, with_entropy=True)
    assert entropies is not None
    return log_probs, entropies


@pytest.mark.parametrize("part_tokens", [1, 7, 1000])
def test_scores_of_bfloat16_logits_are_those_of_float64(
    logits: torch.Tensor, part_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART_ELEMENTS", part_tokens * N_WORDS)
    for found, expected in zip(scored(logits), exact(logits), strict=True):
        assert found.dtype == torch.float32 and (found - expected).abs().max() < 1e-5


def test_in_bfloat16_they_would_be_off_by_a_thousand_times_that(logits: torch.Tensor) -> None:
    every = torch.log_softmax(logits / TEMPERATURE, dim=-1)
    assert (every[torch.arange(N_TOKENS), TOKENS] - exact(logits)[0]).abs().mean() > 1e-3


def gradient(of: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]], given: torch.Tensor) -> torch.Tensor:
    """Of a loss with both scores in it, at the logits."""
    leaf = given.clone().requires_grad_()
    log_probs, entropies = of(leaf)
    (log_probs * torch.linspace(-1, 1, N_TOKENS, dtype=log_probs.dtype) + 0.1 * entropies).sum().backward()
    assert leaf.grad is not None
    return leaf.grad


def test_so_is_their_gradient(logits: torch.Tensor) -> None:
    expected = gradient(exact, logits.double())
    assert (gradient(scored, logits.float()) - expected).abs().max() < 1e-6
    rounded = gradient(scored, logits)  # once, to the logits' own precision
    assert rounded.dtype == torch.bfloat16 and ((rounded - expected).abs() <= expected.abs() * 2**-8 + 1e-6).all()


def test_no_token_has_no_score() -> None:
    log_probs, entropies = token_scores(
        torch.zeros(0, 5, requires_grad=True), torch.zeros(0, dtype=torch.long), temperature=1.0, with_entropy=True
    )
    assert log_probs.shape == (0,) and entropies is not None and entropies.shape == (0,)


def test_memory_is_that_of_a_part(logits: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept for the backward pass is the logits alone, never a float32 copy of all of them."""
    monkeypatch.setattr(module, "PART_ELEMENTS", 2 * N_WORDS)
    kept: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    leaf = logits.clone().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        log_probs, _ = token_scores(leaf, TOKENS, temperature=TEMPERATURE, with_entropy=True)
    assert log_probs.requires_grad
    assert sum(tensor.numel() for tensor in kept if tensor.dtype == torch.float32) < 2 * N_WORDS
