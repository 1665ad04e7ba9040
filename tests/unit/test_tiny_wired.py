"""The hand-set heads of the tiny policy: copying works before any training, by three tokens."""

from __future__ import annotations

import random

import pytest
import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from sql_agent.tiny_policy.train import build_model


@pytest.fixture(scope="module")
def model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build_model(tokenizer).eval()


@pytest.mark.parametrize("n_shared", [1, 2])
@torch.no_grad()
def test_of_two_places_that_end_alike_the_one_with_the_same_three_tokens_is_copied(
    model: Qwen3ForCausalLM, n_shared: int
) -> None:
    rng, tokens = random.Random(0), range(model.config.vocab_size)
    rows, right, wrong = [], [], []
    for i in range(200):
        fill, asked, other = (rng.sample(tokens, n) for n in (40, 4, 4))
        other[3 - n_shared : 3] = asked[3 - n_shared : 3]
        first, second = (asked, other) if i % 2 else (other, asked)
        rows.append([*fill[:10], *first, *fill[10:25], *second, *fill[25:], *asked[:3]])
        right.append(asked[3])
        wrong.append(other[3])
    logits = model(torch.tensor(rows)).logits[:, -1]
    index = torch.arange(len(rows))
    share = (logits[index, right] > logits[index, wrong]).float().mean()
    # Matching only what both places share gives a half.
    assert share > 0.6, share
