"""The NVIDIA GPUs of this machine, as its driver tells of them; nothing is loaded for it."""

from __future__ import annotations

import shutil
import subprocess


def gpu_count() -> int:
    """How many NVIDIA GPUs a driver answers for; 0 without one."""
    return sum(line.startswith("GPU ") for line in _driver("-L"))


def on_cpu(device: str) -> bool:
    """Whether `trainer.device` means the CPU of this machine."""
    return device == "cpu" or (device == "auto" and not gpu_count())


def gpu_memory_gb() -> float:
    """Memory of the smallest GPU, in GB (1e9 bytes); 0 without a driver."""
    lines = _driver("--query-gpu=memory.total", "--format=csv,noheader,nounits")
    return min((int(line) for line in lines if line.strip().isdigit()), default=0) * 2**20 / 1e9


def _driver(*arguments: str) -> list[str]:
    """The lines that NVIDIA's driver answers with; [] where there is none."""
    if not shutil.which("nvidia-smi"):
        return []
    try:
        answer = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return answer.stdout.splitlines()
