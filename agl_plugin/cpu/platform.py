"""A machine without a GPU as one of verl's platforms: verl 0.9 brings them for CUDA, NPU and ROCm alone.

Registered by agl_plugin.patches.verl_hook and chosen by VERL_PLATFORM (foundation.environment). Ranks talk by gloo, and
Ray's resource stays a pretended GPU, of which `ray.init` has one per rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry

from foundation.environment import CPU_PLATFORM


def nothing(*_args: Any, **_kwargs: Any) -> None:
    """For what has no meaning without a GPU."""


def unpinned(tensor: Any, *_args: Any, **_kwargs: Any) -> Any:
    """The tensor, in the memory where it is."""
    return tensor


class _Device(str):
    """verl gives a device's index to torch as a device, and writes it behind "cpu:" as well."""

    def __format__(self, spec: str) -> str:
        return "0"


def _module() -> ModuleType:
    """What `torch.cuda` is on a GPU: `torch.cpu`, with the names that it lacks."""
    names = vars(torch.cpu) | {
        "is_available": lambda: False,  # else verl would collect garbage three times a step, for a GPU's memory
        "get_rng_state": torch.get_rng_state,
        "set_rng_state": torch.set_rng_state,
        "manual_seed": torch.manual_seed,
        "mem_get_info": lambda *_: (0, 0),
    }
    names |= dict.fromkeys(("empty_cache", "ipc_collect", "reset_peak_memory_stats"), nothing)
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        names[name] = lambda *_: 0
    module = ModuleType("torch_cpu_as_verl_asks_it")
    vars(module).update(names)
    return module


Platform: Any = PlatformBase  # whose properties are plain values here


@PlatformRegistry.register(platform=CPU_PLATFORM)
class CpuPlatform(Platform):
    device_name = "cpu"
    vendor_name = CPU_PLATFORM
    device_module = _module()

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return _Device("cpu")

    def device_count(self) -> int:
        return 1

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """Ray sets it for the pretended GPU."""
        return "CUDA_VISIBLE_DEVICES"

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        """Weights go to vLLM through shared memory."""
        return False

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed
    set_device: Callable[..., None] = nothing
    synchronize: Callable[..., None] = nothing
    set_allocator_settings: Callable[..., None] = nothing
    empty_cache: Callable[..., None] = nothing
    profiler_start: Callable[..., None] = nothing
    profiler_stop: Callable[..., None] = nothing
    cudart: Callable[..., None] = nothing
