"""The hand-set heads of the tiny policy: copying works before any training, by three tokens."""

from __future__ import annotations

import random

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from sql_agent.tiny_policy.wired import wire

N_TOKENS = 1000


def fresh_model() -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=N_TOKENS,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        rope_theta=10000.0,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return wire(Qwen3ForCausalLM(config)).eval()


@pytest.mark.parametrize("n_shared", [1, 2])
@torch.no_grad()
def test_of_two_places_that_end_alike_the_one_with_the_same_three_tokens_is_copied(n_shared: int) -> None:
    rng, model = random.Random(0), fresh_model()
    rows, right, wrong = [], [], []
    for i in range(200):
        fill, asked, other = (
            rng.sample(range(N_TOKENS), 40),
            rng.sample(range(N_TOKENS), 4),
            rng.sample(range(N_TOKENS), 4),
        )
        other[3 - n_shared : 3] = asked[3 - n_shared : 3]
        first, second = (asked, other) if i % 2 else (other, asked)
        rows.append([*fill[:10], *first, *fill[10:25], *second, *fill[25:], *asked[:3]])
        right.append(asked[3])
        wrong.append(other[3])
    logits = model(torch.tensor(rows)).logits[:, -1]
    index = torch.arange(len(rows))
    share = (logits[index, right] > logits[index, wrong]).float().mean()
    # Matching only what both places share gives a half.
    assert share > 0.7, share
