# pyright: reportOptionalSubscript=false, reportOptionalOperand=false, reportArgumentType=false, reportOperatorIssue=false
# A model's configuration has its defaults filled in, which transformers' types do not say.
"""An initialisation that can copy from the first step: previous-token heads and an induction head, set by hand.

From random weights a model of 1M parameters needs thousands of steps before it repeats a name that it never saw; with
these heads (Olsson et al. 2022, "In-context Learning and Induction Heads") the copying exercise is learned in 80.
All weights stay trainable, and nothing about the task is in them: only "attend to what followed these three tokens
before". Three, because cells repeat characters (血压偏高；血脂偏高；): a head that matches fewer skips items or goes in
circles.

  embeddings   random unit vectors, plus one constant direction, from which position alone can be read
  layer 0      queries and keys are constants, rotated by one to three positions against each other, so that each query
               head attends to one place before; it writes a 32-dimensional code of the token there into a part of the
               residual stream of its own. The query heads of a KV head share their code: the first one's look one and
               two tokens back, the second one's two and three
  layer 1      a query (codes of this token and of the two before) matches the keys (codes of the three tokens before)
               in the slow rotary pairs, which hardly turn over a few hundred tokens; values copy the matched embedding
  the rest     small random weights
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention

CONSTANT = 0  # the embedding dimension that holds the constant direction
FAST_PAIRS = slice(0, 4)  # rotary pairs that tell neighbours apart
SLOW_PAIRS = slice(6, 16)  # rotary pairs that turn less than 0.03 rad per token
SMALL = 0.02
PREVIOUS_GAIN, PREVIOUS_SHARPNESS = 0.25, 3.0
COPY_GAIN, MATCH_SHARPNESS = 0.5, 2.0


class Code(NamedTuple):
    """How layer 0 notes a token: `read` (head_dim x hidden) makes a code, the others (hidden x head_dim) place it."""

    read: torch.Tensor
    nearer: torch.Tensor
    farther: torch.Tensor


@torch.no_grad()
def wire(model: Qwen3ForCausalLM) -> Qwen3ForCausalLM:
    """Set the weights of a fresh model in place, from torch's generator, and return it."""
    config = model.config
    embeddings = model.model.embed_tokens.weight
    embeddings.normal_(0.0, config.hidden_size**-0.5)
    embeddings[:, CONSTANT] = 1.0
    for weight in model.model.layers.parameters():
        if weight.ndim == 2:
            weight.normal_(0.0, SMALL)
    _wire_induction(model, _wire_previous_tokens(model))
    return model


def _orthonormal(rows: int, columns: int) -> torch.Tensor:
    """A random rows x columns matrix, orthonormal along its shorter side; unless square, blind to the constant."""
    basis = torch.linalg.qr(torch.randn(max(rows, columns), min(rows, columns)))[0]
    matrix = basis if rows > columns else basis.T
    if columns > rows:
        matrix[:, CONSTANT] = 0.0
    elif rows > columns:
        matrix[CONSTANT] = 0.0
    return matrix


def _wire_previous_tokens(model: Qwen3ForCausalLM) -> list[Code]:
    """Layer 0. Returns the code of each KV head."""
    attention, config = _attention(model, 0), model.config
    dim, half = config.head_dim, config.head_dim // 2
    angles = config.rope_parameters["rope_theta"] ** (-torch.arange(half) / half)
    key = torch.zeros(dim)
    key[FAST_PAIRS] = 1.0
    parts = _orthonormal(config.hidden_size, config.num_attention_heads * dim).split(dim, dim=1)
    codes = []
    for kv in range(config.num_key_value_heads):
        read = _orthonormal(dim, config.hidden_size)
        _rows(attention.k_proj, kv, dim).zero_()[:, CONSTANT] = key
        _rows(attention.v_proj, kv, dim).copy_(read)
        heads = _query_heads(config, kv)
        for back, head in enumerate(heads, start=1 + kv):
            query = torch.cat([key[:half] * torch.cos(back * angles), -key[:half] * torch.sin(back * angles)])
            _rows(attention.q_proj, head, dim).zero_()[:, CONSTANT] = query
            _columns(attention.o_proj, head, dim).copy_(parts[head] * PREVIOUS_GAIN)
        codes.append(Code(read, *(parts[head] for head in heads)))
    _sharpen(attention, PREVIOUS_SHARPNESS)
    return codes


def _wire_induction(model: Qwen3ForCausalLM, codes: list[Code]) -> None:
    """Layer 1."""
    attention, config = _attention(model, 1), model.config
    dim = config.head_dim
    slow = torch.zeros(dim // 2)
    slow[SLOW_PAIRS] = 1.0
    mask = slow.repeat(2)[:, None]
    near, far = codes
    # What a query notes of itself and two tokens before it; what a key notes of the three tokens before it.
    pairs = [(near.read, near.nearer.T), (near.nearer.T, near.farther.T), (far.nearer.T, far.farther.T)]
    for kv in range(config.num_key_value_heads):
        turns = [_orthonormal(dim, dim) * mask for _ in pairs]
        query = torch.stack([turn @ of_query for turn, (of_query, _) in zip(turns, pairs, strict=True)]).sum(0)
        key = torch.stack([turn @ of_key for turn, (_, of_key) in zip(turns, pairs, strict=True)]).sum(0)
        copied = _orthonormal(dim, config.hidden_size)
        _rows(attention.k_proj, kv, dim).copy_(key)
        _rows(attention.v_proj, kv, dim).copy_(copied)
        for head in _query_heads(config, kv):
            _rows(attention.q_proj, head, dim).copy_(query)
            _columns(attention.o_proj, head, dim).copy_(copied.T * COPY_GAIN / 2)
    _sharpen(attention, MATCH_SHARPNESS)


def _attention(model: Qwen3ForCausalLM, layer: int) -> Qwen3Attention:
    return cast(Qwen3Attention, model.model.layers[layer].self_attn)


def _query_heads(config: Qwen3Config, kv: int) -> range:
    """The query heads that share one KV head."""
    n = config.num_attention_heads // config.num_key_value_heads
    return range(kv * n, (kv + 1) * n)


def _rows(layer: torch.nn.Linear, head: int, head_dim: int) -> torch.Tensor:
    return layer.weight[head * head_dim : (head + 1) * head_dim]


def _columns(layer: torch.nn.Linear, head: int, head_dim: int) -> torch.Tensor:
    return layer.weight[:, head * head_dim : (head + 1) * head_dim]


def _sharpen(attention: Qwen3Attention, weight: float) -> None:
    """Raise the norms of queries and keys: attention logits grow with the square of `weight`."""
    attention.q_norm.weight.fill_(weight)
    attention.k_norm.weight.fill_(weight)
