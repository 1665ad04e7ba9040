"""CPU mode: lets verl 0.6.1 run its FSDP + vLLM path on a machine without a GPU; no file of verl is edited.

Loaded by verl in each of its processes (VERL_USE_EXTERNAL_MODULES), and active where AGENTGRPO_CPU=1. Each entry says
which call of verl needs it. Tried with one rank; several ranks on a CPU are not covered.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from foundation.processes import keep_freed_memory

CPU_FLAG = "AGENTGRPO_CPU"


def give_torch_cpu_a_device_api() -> None:
    """verl asks `torch.cpu` for what `torch.cuda` has: random state, cache and memory figures."""

    def nothing(*_args: Any, **_kwargs: Any) -> None:
        return None

    def zero(*_args: Any, **_kwargs: Any) -> int:
        return 0

    names: dict[str, Any] = {
        "get_rng_state": torch.random.get_rng_state,
        "set_rng_state": torch.random.set_rng_state,
        "manual_seed": torch.manual_seed,
        "empty_cache": nothing,
        "reset_peak_memory_stats": nothing,
        "memory_allocated": zero,
        "memory_reserved": zero,
        "max_memory_allocated": zero,
        "max_memory_reserved": zero,
        "mem_get_info": lambda *_a, **_k: (0, 0),
    }
    for name, value in names.items():
        if not hasattr(torch.cpu, name):
            setattr(torch.cpu, name, value)


def use_gloo_for_nccl() -> None:
    """verl's workers ask for `cpu:gloo,cpu:nccl`; without a GPU the answer is gloo alone."""
    original = torch.distributed.init_process_group

    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        return original("gloo" if backend and "nccl" in backend else backend, *args, **kwargs)

    torch.distributed.init_process_group = init_process_group


def let_fsdp_start_on_cpu() -> None:
    """FSDP1 refuses `sync_module_states` for CPU modules; with one rank there is nothing to sync."""
    from torch.distributed.fsdp import _init_utils

    _init_utils._check_module_states_for_sync_module_states = lambda *_a, **_k: None  # pyright: ignore[reportPrivateUsage]


def skip_pinned_memory() -> None:
    """The offload helpers of the reference model pin memory, which needs a GPU driver."""
    torch.Tensor.pin_memory = lambda self, *_a, **_k: self  # pyright: ignore[reportAttributeAccessIssue]


def skip_emptying_caches() -> None:
    """verl collects garbage three times a step to free GPU memory: 1.5 s a step on a CPU, for nothing."""
    from verl.utils import memory_utils

    memory_utils.aggressive_empty_cache = lambda *_a, **_k: None


if os.environ.get(CPU_FLAG) == "1":
    keep_freed_memory()
    skip_emptying_caches()
    give_torch_cpu_a_device_api()
    use_gloo_for_nccl()
    let_fsdp_start_on_cpu()
    skip_pinned_memory()
