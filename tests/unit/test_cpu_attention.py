"""The torch decode step against plain attention, and the guard around the kernel."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from agl_plugin.cpu.attention import decode_with_torch, guard_decoding

HEADS, KV_HEADS, SIZE, BLOCK = 4, 2, 8, 4


def case(lengths: list[int]) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    n_blocks = sum(-(-length // BLOCK) for length in lengths) + 1
    order = torch.randperm(n_blocks, generator=generator).tolist()
    tables = torch.zeros(len(lengths), max(-(-length // BLOCK) for length in lengths) + 1, dtype=torch.int32)
    for row, length in enumerate(lengths):
        for column in range(-(-length // BLOCK)):
            tables[row, column] = order.pop()
    return {
        "query": torch.randn(len(lengths), HEADS, SIZE, generator=generator),
        "key_cache": torch.randn(n_blocks, KV_HEADS, BLOCK, SIZE, generator=generator),
        "value_cache": torch.randn(n_blocks, KV_HEADS, BLOCK, SIZE, generator=generator),
        "block_tables": tables,
        "context_lens": torch.tensor(lengths, dtype=torch.int32),
    }


def plain(given: dict[str, Any], scale: float) -> torch.Tensor:
    """Token by token and head by head."""
    rows = []
    for row, length in enumerate(given["context_lens"].tolist()):
        places = [(int(given["block_tables"][row, i // BLOCK]), i % BLOCK) for i in range(length)]
        for head in range(HEADS):
            kv = head // (HEADS // KV_HEADS)
            keys = torch.stack([given["key_cache"][block, kv, at] for block, at in places])
            values = torch.stack([given["value_cache"][block, kv, at] for block, at in places])
            weights = torch.softmax(keys @ given["query"][row, head] * scale, dim=0)
            rows.append(weights @ values)
    return torch.stack(rows).view(-1, HEADS, SIZE)


def test_it_is_attention_over_the_cached_tokens() -> None:
    given = case([1, 4, 5, 13])
    output = torch.empty_like(given["query"])
    decode_with_torch(output, **given, scale=0.3)
    assert torch.allclose(output, plain(given, 0.3), atol=1e-6)


def test_the_guard_computes_what_the_kernel_refuses_and_leaves_the_rest_to_it() -> None:
    calls = []

    def kernel(output: torch.Tensor, *_: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("Sliding window unsupported")
        output.fill_(7.0)

    backend = SimpleNamespace(_IPEXPagedAttention=SimpleNamespace(forward_decode=kernel))
    guard_decoding(backend)
    given = case([3, 6])
    output = torch.empty_like(given["query"])
    arguments = (output, *given.values(), 6, "auto", KV_HEADS, 0.3, None, 1.0, 1.0)
    backend._IPEXPagedAttention.forward_decode(*arguments)
    assert torch.allclose(output, plain(given, 0.3), atol=1e-6)
    backend._IPEXPagedAttention.forward_decode(*arguments)
    assert (output == 7.0).all() and len(calls) == 2


def test_what_does_not_fit_together_is_an_error() -> None:
    given = case([3, 6])
    with pytest.raises(ValueError, match="3 queries, 2 lengths"):
        decode_with_torch(torch.empty(3, HEADS, SIZE), **{**given, "query": torch.empty(3, HEADS, SIZE)}, scale=1.0)
