"""What vLLM does otherwise with this project installed; it loads this through its plugin entry point, when it starts.

In training and in serving alike: decoding on a CPU survives a refusal of Intel's kernel (agl_plugin/cpu/attention.py)
and samples without a compiler (agl_plugin/cpu/sampling.py); on a CPU, weights are used without a detour through Python,
and a core is left to others; a chat template is parsed once, not again for each request; log-probabilities come as
plain numbers to who asks for that (plain_log_probs.py). No result changes. The engine's process ends with the
server's, kill -9 included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import wrapt

from agl_plugin.cpu import attention as cpu_attention
from agl_plugin.cpu import sampling as cpu_sampling
from agl_plugin.patches import plain_log_probs
from foundation.processes import die_with_parent


def plain_parameters(module: Any) -> None:
    """Give vLLM's parameters torch's own behaviour on a CPU.

    Each use of one goes through a Python function that only calls on: a fifth of a small model's decoding.
    """
    if not torch.cuda.is_available():  # with CUDA, torch.compile is meant to see the subclass
        module.BasevLLMParameter.__torch_function__ = torch.nn.Parameter.__torch_function__


def remember_templates(module: Any) -> None:
    """Let vLLM find the variables of a chat template once: each time takes 10 ms, of each request."""
    resolve = module.resolve_chat_template_kwargs
    known: dict[tuple[str, frozenset[str]], set[str]] = {}

    def resolve_once(tokenizer: Any, chat_template: str, chat_template_kwargs: dict[str, Any]) -> dict[str, Any]:
        key = chat_template, frozenset(chat_template_kwargs)
        if key not in known:
            known[key] = set(resolve(tokenizer, chat_template, chat_template_kwargs))
        return {name: value for name, value in chat_template_kwargs.items() if name in known[key]}

    module.resolve_chat_template_kwargs = resolve_once


def leave_a_core(module: Any) -> None:
    """On a CPU let the engine compute with one thread less than there are, for the proxy, the store and the agent.

    Its threads wait for each other at every operation; one that lost its core to another process stops all.
    The update, which runs alone, has all threads.
    """
    if torch.cuda.is_available():
        return
    execute = module.Worker.execute_model

    def execute_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        n_threads = torch.get_num_threads()
        torch.set_num_threads(max(1, n_threads - 1))
        try:
            return execute(self, *args, **kwargs)
        finally:
            torch.set_num_threads(n_threads)

    module.Worker.execute_model = execute_model


HOOKS: dict[str, Callable[[Any], None]] = {
    cpu_attention.BACKEND: cpu_attention.guard_decoding,
    cpu_sampling.SAMPLER: cpu_sampling.sample_plainly,
    "vllm.model_executor.parameter": plain_parameters,
    "vllm.entrypoints.chat_utils": remember_templates,
    "vllm.v1.worker.gpu_worker": leave_a_core,
    plain_log_probs.SERVING: plain_log_probs.answer_plainly,
}
_registered: list[str] = []


def register() -> None:
    """vLLM's plugin hook: act as soon as vLLM imports the modules. vLLM may call it more than once."""
    if not _registered:
        die_with_parent()
        _registered.extend(HOOKS)
        for name, hook in HOOKS.items():
            wrapt.register_post_import_hook(hook, name)
