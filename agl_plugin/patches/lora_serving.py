"""LoRA: vLLM's HTTP server samples with the policy's adapter, not with the bare base model.

verl puts the adapter into the engine under a fixed id and names it only in its own `generate()`; a request that comes
over HTTP names the base model and would be answered by it, without any error. Loaded by verl in each of its processes
(VERL_USE_EXTERNAL_MODULES) when model.lora_rank > 0.
"""

from __future__ import annotations

from typing import Any

from verl.workers.rollout.vllm_rollout.utils import VLLM_LORA_INT_ID, VLLM_LORA_NAME, VLLM_LORA_PATH
from vllm.entrypoints.openai.serving_engine import OpenAIServing
from vllm.lora.request import LoRARequest


def policy_adapter(_self: OpenAIServing, _request: Any, supports_default_mm_loras: bool = False) -> LoRARequest:
    """The adapter that verl loaded at the last weight sync."""
    return LoRARequest(lora_name=VLLM_LORA_NAME, lora_int_id=VLLM_LORA_INT_ID, lora_path=VLLM_LORA_PATH)


OpenAIServing._maybe_get_adapters = policy_adapter  # pyright: ignore
