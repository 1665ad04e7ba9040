"""Warm-started weights that come with the repository, so that a first run need not spend minutes on them.

Guarantees: a file is used only for the seed and the sources that it was made of (its header holds their fingerprint);
every built policy is rounded as these files are, so that shipped and built are one policy, up to the machine's type.
The files are made by `python -m sql_agent.tiny_policy.build --seed 1 --ship` (and `--recipe`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from sql_agent.tiny_policy.sources import fingerprint
from sql_agent.tiny_policy.task import TinyTask

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM


def shipped_file(seed: int, task: TinyTask) -> Path:
    return task.shipped / f"seed_{seed}.safetensors"


def is_shipped(seed: int, task: TinyTask) -> bool:
    """Whether weights of this seed are there that were made of the present sources."""
    try:
        with safe_open(shipped_file(seed, task), framework="numpy") as weights:
            metadata = weights.metadata() or {}
    except (OSError, SafetensorError):
        return False
    return metadata.get("fingerprint") == fingerprint(seed, task)


def load_shipped(tokenizer: PreTrainedTokenizerFast, seed: int, task: TinyTask) -> Qwen3ForCausalLM:
    """The policy of a seed that `is_shipped`."""
    from safetensors.torch import load_file

    from sql_agent.tiny_policy.train import build_model

    model = build_model(tokenizer)
    weights = load_file(shipped_file(seed, task))
    # The head is the embedding, and not stored twice.
    model.load_state_dict({**weights, "lm_head.weight": weights["model.embed_tokens.weight"]})
    return model.eval()


def round_weights(model: Qwen3ForCausalLM) -> None:
    """Round each weight to the nearest number of 16 bits; they stay float32."""
    for parameter in model.parameters():
        parameter.data = parameter.data.half().float()


def ship(model: Qwen3ForCausalLM, seed: int, task: TinyTask) -> Path:
    """Write the weights in 16 bits, with the fingerprint of the present sources."""
    from safetensors.torch import save_file

    file = shipped_file(seed, task)
    file.parent.mkdir(exist_ok=True)
    weights = {
        name: value.half().contiguous() for name, value in model.state_dict().items() if name != "lm_head.weight"
    }
    save_file(weights, file, metadata={"fingerprint": fingerprint(seed, task), "seed": str(seed)})
    return file
