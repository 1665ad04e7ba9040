"""The policy as it is trained in one process: its weights, and its adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from sql_agent.config import ModelConfig


def load_model(config: ModelConfig, folder: Path, *, adapter: str = "", **more: Any) -> Any:
    """The policy in float32; with the `adapter` of this path to be trained on."""
    disable_progress_bar()
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder,
        **more,
        dtype=torch.float32,
        attn_implementation=config.attention,
        trust_remote_code=config.allow_remote_code,
        use_safetensors=None if config.allow_remote_code else True,
    )
    if adapter:
        from peft import PeftModel

        return PeftModel.from_pretrained(model, Path(adapter).expanduser(), is_trainable=True, use_safetensors=True)
    return model


def lora_of(config: ModelConfig) -> Any:
    """peft's LoraConfig of a new adapter on all linear layers: rank and alpha from the configuration."""
    from peft import LoraConfig

    settings = {"r": config.lora_rank, "lora_alpha": config.lora_alpha, "target_modules": "all-linear"}
    return LoraConfig(**settings, task_type="CAUSAL_LM")
