"""Small reward models for tests, made on the spot: the tiny policy's tokenizer, a two-layer Qwen3, random weights.

They score at random, which is enough wherever the machinery is tested and not the judgement; what a trained one is
worth is tested in tests/smoke/test_reward_model_smoke.py.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, Qwen3ForSequenceClassification

from sql_agent.tiny_policy.corpus import load_corpus
from sql_agent.tiny_policy.tokenizer import train_tokenizer

MAX_TOKENS = 512
# Threads wait for one another longer than such a model takes, most of all on a busy machine.
torch.set_num_threads(1)


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """The tiny policy's tokenizer."""
    return train_tokenizer(load_corpus().texts)


def make_model(folder: Path, *, head: bool = True, seed: int = 1, **settings: Any) -> Path:
    """Write a model folder: a reward model, or without `head` a language model to start from."""
    known = tokenizer()
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    config = Qwen3Config(
        **{
            **sizes,
            **heads,
            "vocab_size": len(known),
            "max_position_embeddings": MAX_TOKENS,
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": known.eos_token_id,
            "pad_token_id": known.pad_token_id,
            "num_labels": 1,
            **settings,
        }
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForSequenceClassification(config) if head else Qwen3ForCausalLM(config)
    if isinstance(model, Qwen3ForSequenceClassification):
        # A head of the usual 0.02 gives scores too alike to tell a mistake from rounding.
        torch.nn.init.normal_(model.score.weight, std=1.0, generator=torch.Generator().manual_seed(seed))
    model.save_pretrained(folder)
    known.save_pretrained(folder, save_jinja_files=False)
    return folder


def edit_json(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file; None removes one."""
    tree = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    path.write_text(json.dumps({key: value for key, value in tree.items() if value is not None}), encoding="utf-8")
