"""The update on a GPU is the CPU's: same batch, same weights, float32."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from foundation.environment import CPU_PLATFORM
from sql_agent.config import ROOT
from tests.gpu.conftest import need_gpus

# TensorFloat32 is off by default in torch; what is left is the order of sums.
RELATIVE_ERROR_MAX = 1e-4


def update(out: Path, **environment: str) -> dict[str, Any]:
    """What tests/gpu/one_update.py finds on the device that the environment leaves."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.gpu.one_update", str(out)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(out, weights_only=True)


def on_the_cpu(folder: Path) -> dict[str, Any]:
    """The update with all GPUs hidden, from verl too, which takes a machine with a driver for one with a GPU."""
    platform = {"VERL_PLATFORM": CPU_PLATFORM, "VERL_USE_EXTERNAL_MODULES": "agl_plugin.cpu.platform"}
    return update(folder / "cpu.pt", CUDA_VISIBLE_DEVICES="-1", **platform)


@pytest.mark.gpu
def test_the_update_of_a_gpu_is_that_of_the_cpu(tmp_path: Path) -> None:
    need_gpus(1)
    expected, found = on_the_cpu(tmp_path), update(tmp_path / "gpu.pt")
    assert (expected["device"], found["device"]) == ("cpu", "cuda")
    error = (found["moved"] - expected["moved"]).norm() / expected["moved"].norm()
    print(f"\nupdate on the GPU against the CPU, float32: relative difference {error:.1e}")
    assert error < RELATIVE_ERROR_MAX and found["loss"] == pytest.approx(expected["loss"], rel=1e-3)


@pytest.mark.long
def test_the_cpus_half_runs_here(tmp_path: Path) -> None:
    found = on_the_cpu(tmp_path)
    assert found["device"] == "cpu" and found["moved"].any() and torch.isfinite(found["moved"]).all()
