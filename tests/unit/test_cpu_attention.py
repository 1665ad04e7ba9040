"""The torch decode step against plain attention and against Intel's kernel, and the guard around that."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from agl_plugin.cpu.attention import decode_with_torch, guarded

HEADS, KV_HEADS, SIZE, BLOCK = 4, 2, 8, 4


def case(lengths: list[int], *, size: int = SIZE, block: int = BLOCK) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    n_blocks = sum(-(-length // block) for length in lengths) + 1
    order = torch.randperm(n_blocks, generator=generator).tolist()
    tables = torch.zeros(len(lengths), max(-(-length // block) for length in lengths) + 1, dtype=torch.int32)
    for row, length in enumerate(lengths):
        for column in range(-(-length // block)):
            tables[row, column] = order.pop()
    return {
        "query": torch.randn(len(lengths), HEADS, size, generator=generator),
        "key_cache": torch.randn(n_blocks, KV_HEADS, block, size, generator=generator),
        "value_cache": torch.randn(n_blocks, KV_HEADS, block, size, generator=generator),
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


@pytest.fixture(scope="module")
def kernel() -> Any:
    """vLLM's decode step on a CPU, which calls Intel's kernel."""
    backend = pytest.importorskip("vllm.v1.attention.backends.cpu_attn")
    pytest.importorskip("intel_extension_for_pytorch")
    return backend._IPEXPagedAttention.forward_decode


def decoded(kernel: Any, given: dict[str, Any]) -> torch.Tensor:
    """What vLLM's backend asks of the kernel; blocks of 16 tokens, as it makes them."""
    output = torch.empty_like(given["query"])
    longest = int(given["context_lens"].max())
    kernel(output, *given.values(), longest, "auto", KV_HEADS, 0.3, None, torch.ones(1), torch.ones(1))
    return output


@pytest.mark.parametrize("lengths", [[1], [3, 16], [16, 17, 40]])
def test_the_kernel_and_the_guard_give_what_torch_gives(kernel: Any, lengths: list[int]) -> None:
    given = case(lengths, size=64, block=16)
    output = torch.empty_like(given["query"])
    decode_with_torch(output, **given, scale=0.3)
    for function in (kernel, guarded(kernel)):
        assert torch.allclose(decoded(function, given), output, atol=1e-5)


def test_what_the_kernel_refuses_is_computed_again(kernel: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The real refusal cannot be brought about; the arguments are the real backend's."""

    def refuses(*_arguments: Any) -> None:
        raise RuntimeError("Sliding window unsupported")

    given = case([3, 20], size=64, block=16)
    assert torch.allclose(decoded(guarded(refuses), given), decoded(kernel, given), atol=1e-5)
    assert "Sliding window unsupported" in caplog.text and "lengths [3, 20]" in caplog.text


def test_what_does_not_fit_together_is_an_error() -> None:
    given = case([3, 6])
    with pytest.raises(ValueError, match="3 queries, 2 lengths"):
        decode_with_torch(torch.empty(3, HEADS, SIZE), **{**given, "query": torch.empty(3, HEADS, SIZE)}, scale=1.0)
