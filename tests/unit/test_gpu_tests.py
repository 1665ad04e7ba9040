"""The tests for GPUs are there, a step of each GPU recipe among them, and without a GPU they are skipped."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sql_agent.config import ROOT
from tests.gpu.test_recipes import gpu_recipes


@pytest.mark.long
def test_they_are_collected_and_skip_for_the_right_reason() -> None:
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "tests/gpu", "-rs", "-p", "no:cacheprovider"]
    hidden = {**os.environ, "PATH": "/no-such-folder"}  # where no nvidia-smi is
    done = subprocess.run(command, cwd=ROOT, env=hidden, capture_output=True, text=True, check=False)
    n_tests = len(gpu_recipes()) + 3
    assert done.returncode == 0, done.stdout
    assert f"{n_tests} skipped" in done.stdout and "passed" not in done.stdout
    skips = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert skips and all("NVIDIA GPU(s), the driver shows 0" in line for line in skips)
