"""CPU mode: stand-ins that let verl 0.6.1 run its FSDP + vLLM path on a machine without a GPU.

Installed where AGENTGRPO_CPU=1; agl_plugin/patches/register.py says which call of verl needs which. Tried with one
rank; several ranks on a CPU are not covered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def nothing(*_args: Any, **_kwargs: Any) -> None:
    """For what has no meaning without a GPU."""


def zero(*_args: Any, **_kwargs: Any) -> int:
    """Bytes of a GPU's memory."""
    return 0


def no_device_memory(*_args: Any, **_kwargs: Any) -> tuple[int, int]:
    """Free and total bytes of a GPU's memory."""
    return 0, 0


def unpinned(tensor: Any, *_args: Any, **_kwargs: Any) -> Any:
    """The tensor, in the memory where it is."""
    return tensor


def gloo_for_nccl(original: Callable[..., Any]) -> Callable[..., Any]:
    """`init_process_group`, which takes gloo where nccl is asked for.

    A rank that is alone keeps what ranks tell each other in its memory: torch's own store for it listens on all
    addresses of the machine, without a password.
    """

    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("world_size") == 1 and not args and not kwargs.get("store") and not kwargs.get("init_method"):
            from torch.distributed import HashStore  # pyright: ignore[reportPrivateImportUsage]

            kwargs = {**kwargs, "init_method": None, "store": HashStore()}
        return original("gloo" if backend and "nccl" in backend else backend, *args, **kwargs)

    return init_process_group
