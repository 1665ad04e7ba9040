"""Decoding on a CPU that survives a refusal of Intel's kernel.

vLLM 0.11 decodes on CPUs with intel-extension-for-pytorch, whose paged attention now and then (once in some hundred
thousand calls; the cause was not found) raises "Sliding window unsupported" although none is asked for. That error
would end the engine, and with it the run. Here such a call is computed again with plain torch operations.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

logger = logging.getLogger(__name__)


def decode_with_torch(
    output: torch.Tensor,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
) -> None:
    """Attention of one new token per sequence over its cached keys and values, written into `output`.

    Shapes: output and query sequences x heads x head size; caches blocks x KV heads x block size x head size;
    block_tables sequences x blocks; context_lens sequences, in tokens. Raises ValueError when the sequences differ.
    """
    if not len(query) == len(context_lens) == len(block_tables):
        raise ValueError(f"{len(query)} queries, {len(context_lens)} lengths, {len(block_tables)} block tables")
    n_kv_heads, block_size = key_cache.shape[1], key_cache.shape[2]
    for row, length in enumerate(context_lens.tolist()):
        blocks = block_tables[row, : -(-length // block_size)].long()
        keys = key_cache[blocks].transpose(0, 1).flatten(1, 2)[:, :length]
        values = value_cache[blocks].transpose(0, 1).flatten(1, 2)[:, :length]
        heads = query[row].unflatten(0, (n_kv_heads, -1))
        output[row] = scaled_dot_product_attention(heads, keys, values, scale=scale).flatten(0, 1)


def guarded(kernel: Callable[..., None]) -> Callable[..., None]:
    """The decode step of vLLM's CPU backend, computed again where the kernel refuses."""

    def forward_decode(
        output: torch.Tensor,
        query: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        block_tables: torch.Tensor,
        context_lens: torch.Tensor,
        max_context_len: int,
        kv_cache_dtype: str,
        num_kv_heads: int,
        scale: float,
        *rest: Any,
    ) -> None:
        first = (output, query, key_cache, value_cache, block_tables, context_lens)
        try:
            kernel(*first, max_context_len, kv_cache_dtype, num_kv_heads, scale, *rest)
        except RuntimeError as exc:
            logger.warning(
                "decoding again with torch (%s): query %s, lengths %s, longest %d, block tables %s",
                exc,
                tuple(query.shape),
                context_lens.tolist(),
                max_context_len,
                tuple(block_tables.shape),
            )
            decode_with_torch(*first, scale)

    return forward_decode
