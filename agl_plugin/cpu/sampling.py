"""Sampling of tokens on a CPU without a compiler and without a random number for each word of the vocabulary.

vLLM wraps its sampler for CPUs in torch.compile at every step (a twelfth of a small model's decoding), compiles it
at the first (seconds), draws one exponential number per vocabulary entry, and ignores the seeds of requests unless all
have one. Here one uniform number per sequence is looked up in the cumulated probabilities. The distribution is the same
to the precision of a double. The numbers of a request with a seed are those of foundation.seeds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from foundation.seeds import uniform

PER_DRAW = 4  # by so much vLLM turns a generator back for a draw that does not count


class Draws(torch.Generator):
    """The numbers of a request with a seed. On a CPU torch's own generator cannot be turned back.

    vLLM does that where a prompt is read in parts, and the engine would end with it.
    """

    def __init__(self, seed: int) -> None:
        self.manual_seed(seed)
        self._offset = 0

    def __new__(cls, _seed: int) -> Draws:
        return super().__new__(cls)

    def get_offset(self) -> int:
        return self._offset

    def set_offset(self, offset: int) -> Draws:
        self._offset = offset
        return self

    def next(self) -> float:
        """The next number in [0, 1)."""
        self._offset += PER_DRAW
        return uniform(self.initial_seed(), self._offset // PER_DRAW - 1)


def with_own_draws(post_init: Callable[..., None]) -> Callable[..., None]:
    """`CachedRequestState.__post_init__`, which ends the making of a request, with `Draws` for its generator."""

    @functools.wraps(post_init)
    def with_draws(self: Any) -> None:
        post_init(self)
        if self.generator is not None:
            self.generator = Draws(self.generator.initial_seed())

    return with_draws


def sample_by_inversion(
    probs: torch.Tensor, generators: Mapping[int, torch.Generator], use_fp64_gumbel: bool = False
) -> torch.Tensor:
    """One token per row of `probs` (sequences x vocabulary); `generators` are those of rows with a seed."""
    numbers = torch.rand(len(probs), dtype=torch.float64)
    if generators:
        rows = torch.tensor(list(generators))
        numbers[rows] = torch.tensor([_next(generator) for generator in generators.values()], dtype=torch.float64)
    return looked_up(probs, numbers)


def _next(generator: torch.Generator) -> float:
    """A request has `Draws`; vLLM's try before the first request has torch's own."""
    if isinstance(generator, Draws):
        return generator.next()
    return torch.rand((), dtype=torch.float64, generator=generator).item()


def looked_up(probs: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """The token of each row of `probs`, which need not add up to 1, at its number in [0, 1); shape: sequences.

    A token of probability 0 is never one.
    """
    cumulated = probs.cumsum(dim=-1, dtype=torch.float64)
    # In [0, sum): the next number below the sum is the largest that may be looked up.
    wanted = torch.minimum(numbers[:, None] * cumulated[:, -1:], cumulated[:, -1:].nextafter(cumulated.new_zeros(1)))
    return torch.searchsorted(cumulated, wanted, right=True).view(-1)


def forward_cpu(self: Any, logits: torch.Tensor, generators: dict[int, Draws], k: Any, p: Any) -> Any:
    """vLLM's sampler on a CPU by the path that needs no compiler, which ends in `sample_by_inversion`."""
    return self.forward_native(logits, generators, k, p)
