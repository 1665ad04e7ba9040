"""The whole job needs its model."""

from __future__ import annotations

import subprocess

import pytest

BUILD_S = 1800.0


@pytest.fixture(scope="session", autouse=True)
def built_policy(policy_build: subprocess.Popen[bytes]) -> None:
    """Wait for the tiny policy."""
    status = policy_build.wait(BUILD_S)
    assert status == 0, f"the build of the tiny policy ended with {status}; `make tiny` shows why"
