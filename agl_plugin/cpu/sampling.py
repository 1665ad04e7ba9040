"""Sampling of tokens on a CPU without a compiler and without a random number for each word of the vocabulary.

vLLM 0.11 wraps its sampler for CPUs in torch.compile at every step (a twelfth of a small model's decoding), compiles it
at the first (seconds), draws one exponential number per vocabulary entry, and ignores the seeds of requests unless all
have one. Here one uniform number per sequence is looked up in the cumulated probabilities. The distribution is the same
to the precision of a double.
"""

from __future__ import annotations

from typing import Any

import torch


def sample_by_inversion(probs: torch.Tensor, generators: dict[int, torch.Generator]) -> torch.Tensor:
    """One token per row of `probs` (sequences x vocabulary, rows need not add up to 1); shape: sequences.

    `generators` are those of rows with a seed of their own. A token of probability 0 is never drawn.
    """
    cumulated = probs.cumsum(dim=-1, dtype=torch.float64)
    uniform = torch.rand(len(probs), 1, dtype=torch.float64)
    for row, generator in generators.items():
        uniform[row] = torch.rand(1, dtype=torch.float64, generator=generator)
    # In [0, sum): the next number below the sum is the largest that may be looked up.
    wanted = torch.minimum(
        uniform * cumulated[:, -1:], cumulated[:, -1:].nextafter(torch.zeros(1, dtype=torch.float64))
    )
    return torch.searchsorted(cumulated, wanted, right=True).view(-1)


def forward_cpu(self: Any, logits: torch.Tensor, generators: dict[int, torch.Generator], k: Any, p: Any) -> Any:
    """vLLM's sampler on a CPU by the path that needs no compiler, which ends in `sample_by_inversion`."""
    return self.forward_native(logits, generators, k, p)
