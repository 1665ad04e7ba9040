"""A model folder with the shape and chat template of Qwen3-0.6B or Qwen3.5-0.8B, and random weights.

    python -m recipes.full_shape.model [--shape qwen3_5]

Guarantees: the same seed gives the same weights; a folder appears complete or not at all; it has no code of its own.
1.2 GB on disk at 28 layers. It knows nothing: it is there for memory, lengths and precision, not for answers.
Not covered: Qwen3.5's own vocabulary of 248,320 words, instead of which it has Qwen3's, and its part that reads images,
which is small here: a run on text leaves it as it is.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from transformers import GenerationConfig, Qwen3_5Config, Qwen3_5ForConditionalGeneration, Qwen3Config, Qwen3ForCausalLM

from foundation.command import alias
from foundation.files import read_object, write_json
from recipes.full_shape.vocabulary import END_OF_TEXT, END_OF_TURN, fetch_wheels, qwen_tokenizer
from sql_agent.config import ROOT
from sql_agent.serving.models import language_model

Shape = Literal["qwen3", "qwen3_5"]
N_LAYERS: dict[Shape, int] = {"qwen3": 28, "qwen3_5": 24}
TEMPLATES: dict[Shape, str] = {"qwen3": "qwen3", "qwen3_5": "qwen3_5_nothink"}
FOLDERS: dict[Shape, Path] = {name: ROOT / ".cache" / "full_shape" / name for name in N_LAYERS}


def qwen3_0_6b(*, n_layers: int) -> Qwen3Config:
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


def qwen3_5_0_8b(tokenizer: Any, *, n_layers: int) -> Qwen3_5Config:
    """The numbers of Qwen3.5-0.8B's language model: of four layers three are gated delta nets, one is attention."""
    marks = {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
    marks |= {"vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"}
    return Qwen3_5Config(
        text_config={
            "vocab_size": 151_936,
            "hidden_size": 1024,
            "intermediate_size": 3584,
            "num_hidden_layers": n_layers,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 16,
            "max_position_embeddings": 262_144,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000_000.0,
                "partial_rotary_factor": 0.25,
                "mrope_section": [11, 11, 10],
                "mrope_interleaved": True,
            },
            "tie_word_embeddings": True,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_heads": 4,
            "out_hidden_size": 1024,
        },
        tie_word_embeddings=True,
        **{name: tokenizer.convert_tokens_to_ids(mark) for name, mark in marks.items()},
    )


def build(*, shape: Shape = "qwen3", n_layers: int, seed: int = 1) -> Path:
    """The model folder, built where none has so many layers. Raises UserError where the vocabulary cannot be had."""
    folder = FOLDERS[shape]
    if n_layers_of(folder) == n_layers:
        return folder
    part = folder.with_suffix(".part")
    for old in (part, folder):
        shutil.rmtree(old, ignore_errors=True)
    tokenizer = qwen_tokenizer(fetch_wheels(), template=TEMPLATES[shape])
    tokenizer.save_pretrained(part)
    torch.manual_seed(seed)
    model: Any
    if shape == "qwen3":
        model = Qwen3ForCausalLM(qwen3_0_6b(n_layers=n_layers)).bfloat16()
    else:
        model = Qwen3_5ForConditionalGeneration(qwen3_5_0_8b(tokenizer, n_layers=n_layers)).bfloat16()
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.convert_tokens_to_ids([END_OF_TURN, END_OF_TEXT]), pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(part)
    # Qwen's own folders name this version of transformers: 4.57 takes local tokenizers of 4.57.3 to 4.57.5 for
    # Mistral's, and warns.
    write_json(part / "config.json", read_object(part / "config.json") | {"transformers_version": "4.51.0"})
    part.rename(folder)
    return folder


def n_layers_of(folder: Path) -> int:
    """Layers of the model there; 0 without one."""
    return language_model(folder)["num_hidden_layers"] if folder.is_dir() else 0


def main(
    shape: Annotated[Shape, typer.Option(help="whose shape")] = "qwen3",
    layers: Annotated[int, typer.Option(help="layers; 0: the whole model's", min=0)] = 0,
    seed: Annotated[int, typer.Option(help="seed of the weights")] = 1,
) -> None:
    """Build the model folder and print it."""
    print(build(shape=shape, n_layers=min(layers or N_LAYERS[shape], N_LAYERS[shape]), seed=seed))


if __name__ == "__main__":
    alias(main)
