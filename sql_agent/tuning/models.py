"""The policy as it is trained in one process: its weights, and its adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from sql_agent.config import TrainConfig


def load_model(config: TrainConfig, folder: Path, *, adapter: bool = True, **more: Any) -> Any:
    """The policy in float32; with `model.lora_adapter_path`, to be trained on, unless `folder` has it merged in.

    Without `adapter` the model that an adapter stands on.
    """
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder,
        **more,
        dtype=torch.float32,
        attn_implementation=config.model.attention,
        trust_remote_code=config.model.allow_remote_code,
        use_safetensors=None if config.model.allow_remote_code else True,
    )
    if adapter and config.model.lora_adapter_path and not config.merges_adapter:
        from peft import PeftModel

        place = Path(config.model.lora_adapter_path).expanduser()
        return PeftModel.from_pretrained(model, place, is_trainable=True, use_safetensors=True)
    return model


def lora_of(config: TrainConfig) -> Any:
    """A new adapter's settings; None for all weights, and for an adapter that is there already."""
    if not config.model.lora_rank or (config.model.lora_adapter_path and not config.merges_adapter):
        return None
    from peft import LoraConfig

    settings = {"r": config.model.lora_rank, "lora_alpha": config.model.lora_alpha, "target_modules": "all-linear"}
    return LoraConfig(**settings, task_type="CAUSAL_LM")
