"""LoRA: vLLM's HTTP server samples with the policy's adapter, not with the bare base model.

verl puts the adapter into the engine under a fixed id and names it only in its own `generate()`; a request that comes
over HTTP names the base model and would be answered by it, without any error.
"""

from __future__ import annotations

from typing import Any


def policy_adapter(_self: Any, _request: Any, supports_default_mm_loras: bool = False) -> Any:
    """vLLM's LoRARequest for the adapter that verl loaded at the last weight sync."""
    # Not at the top: vLLM is being imported when this module is.
    from verl.workers.rollout.vllm_rollout.utils import VLLM_LORA_INT_ID, VLLM_LORA_NAME, VLLM_LORA_PATH
    from vllm.lora.request import LoRARequest

    return LoRARequest(lora_name=VLLM_LORA_NAME, lora_int_id=VLLM_LORA_INT_ID, lora_path=VLLM_LORA_PATH)
