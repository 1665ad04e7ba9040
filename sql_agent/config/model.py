"""Section `model`: the policy."""

from __future__ import annotations

from pydantic import Field

from sql_agent.config.node import Node


class ModelConfig(Node):
    """The policy."""

    path: str = Field(
        default="", description="model folder or hub name; empty: the tiny policy, or Qwen/Qwen3-0.6B on a GPU"
    )
    tiny: str = Field(
        default="",
        description="module or .py file whose TASK the tiny policy is made for; empty: the SQL agent",
    )
    tiny_seed: int = Field(
        default=1,
        ge=0,
        lt=2**32,
        description="seed of the tiny policy's warm start: bundled tasks bring the weights of 1, another takes minutes",
    )
    lora_rank: int = Field(default=0, ge=0, description="0 trains all weights")
    lora_alpha: int = Field(default=32, ge=1, description="LoRA scale numerator")
    lora_adapter_path: str = Field(
        default="",
        description="LoRA adapter to continue from; with a KL term, and for dpo, it is merged into the model, and a "
        "new one trained",
    )
    attention: str = Field(
        default="sdpa", description="transformers attention; flash_attention_2 where it is installed"
    )
    allow_remote_code: bool = Field(
        default=False, description="accept a model folder whose JSON names code to import, such as auto_map"
    )
