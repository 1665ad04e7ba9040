"""Section `local`: training in one process, with `agentgrpo train --backend local`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sql_agent.config.node import Node


class LocalConfig(Node):
    """Training in one process."""

    max_batch: int = Field(default=96, ge=1, description="LLM calls that are answered together; fewer need less memory")
    quantization: Literal["none", "nf4"] = Field(
        default="none",
        description="nf4: weights in 4 bits (NF4, quantised twice), with LoRA; needs bitsandbytes",
    )
    optimizer: Literal["adamw", "adamw_8bit"] = Field(
        default="adamw", description="adamw_8bit: its moments in 8 bits; needs a GPU and bitsandbytes"
    )
