"""What an entry of the register says of a patch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Place = Literal["start", "worker", "cpu", "lora", "vllm"]
How = Literal["replaced", "wrapped", "stand-in"]


@dataclass(frozen=True)
class Target:
    """One name of another package: `at` is "module:attribute.path", `by` the function that stands in, written alike.

    `parameters` are the names that `at` must take, in this order; None where it cannot be told (C) or is no function.
    """

    at: str
    by: str
    parameters: str | None

    @property
    def module(self) -> str:
        """Where it is."""
        return self.at.partition(":")[0]


@dataclass(frozen=True)
class Patch:
    """One change, made in each of `places` when the module of its first target is loaded.

    `how`: replaced; wrapped (`by` is called with the original and gives the replacement); or stand-in (the target's
    module is not loaded at all: `by` is called with its name and gives what stands in sys.modules). Patches for `speed`
    can be left out to measure them.
    """

    name: str
    places: tuple[Place, ...]
    package: str
    targets: tuple[Target, ...]
    how: How
    why: str
    until: str
    speed: bool = False
    without_gpu_only: bool = False
