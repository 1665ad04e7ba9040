"""agentlightning without LiteLLM, which its package imports for its own LLM proxy and for a tracer of LiteLLM's calls.

For runs with the gateway. It must be made before agentlightning is imported: where that was, nothing changes.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from foundation.errors import RunError


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
