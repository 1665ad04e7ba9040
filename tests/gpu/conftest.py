"""What a person with a GPU runs first: `make gpu-test`. None of it was run by the authors, who had no GPU.

AGENTGRPO_TEST_MODELS names a folder with the recipes' models (Qwen3-0.6B, Qwen2.5-7B-Instruct); without it they come
from the hub. A test whose GPUs are not there is skipped with the number it needs.
"""

from __future__ import annotations

import pytest

from foundation.gpus import gpu_count


def need_gpus(n: int) -> None:
    """Skip the test where the driver answers for fewer GPUs."""
    if (there := gpu_count()) < n:
        pytest.skip(f"needs {n} NVIDIA GPU(s), the driver shows {there}")
