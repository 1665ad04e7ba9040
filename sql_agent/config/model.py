"""Section `model`: the policy."""

from __future__ import annotations

from sql_agent.config.node import Node, option


class ModelConfig(Node):
    """The policy."""

    path: str = option("", "model folder or hub name; empty: the tiny policy, or Qwen/Qwen3-0.6B on a GPU")
    tiny: str = option("", "module or .py file whose TASK the tiny policy is made for; empty: the SQL agent")
    tiny_seed: int = option(
        1,
        "seed of the tiny policy's warm start: bundled tasks bring the weights of 1, another takes minutes",
        ge=0,
        lt=2**32,
    )
    lora_rank: int = option(0, "0 trains all weights", ge=0)
    lora_alpha: int = option(32, "LoRA scale numerator", ge=1)
    lora_adapter_path: str = option(
        "",
        "LoRA adapter to continue from; with a KL term, and for dpo, it is merged into the model, and a "
        "new one trained",
    )
    attention: str = option("sdpa", "transformers attention; flash_attention_2 where it is installed")
    allow_remote_code: bool = option(False, "accept a model folder whose JSON names code to import, such as auto_map")
