"""Who reaches a run's Ray and has not its token is refused (SECURITY.md): a real Ray, and callers of other homes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from foundation.environment import COMMON_ENV

CLUSTER = """
import sys, ray
info = ray.init(address="local", num_cpus=1, include_dashboard=False, object_store_memory=80 * 2**20)
print("address", info.address_info["gcs_address"], flush=True)
sys.stdin.read()
"""
CALLER = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False)
print("ran", ray.get(ray.remote(lambda: 6 * 7).remote()), flush=True)
"""


def _environment(home: Path, temp: Path, **more: str) -> dict[str, str]:
    return {**os.environ, **COMMON_ENV, "HOME": str(home), "RAY_TMPDIR": str(temp), **more}


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Ray's sockets lie in it: their paths have at most 107 characters."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def cluster(tmp_path: Path, short_folder: Path) -> Iterator[tuple[str, Path]]:
    """A Ray as a run starts it: its address, and its home."""
    home = tmp_path / "home"
    home.mkdir()
    with (
        (tmp_path / "ray.log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-c", CLUSTER],
            env=_environment(home, short_folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdout and process.stdin
        lines = (line.split() for line in process.stdout)
        address = next((line[1] for line in lines if line[:1] == ["address"]), "")
        assert address, (tmp_path / "ray.log").read_text()
        yield address, home
        process.stdin.close()


def _said(address: str, environment: dict[str, str], sign: str) -> str:
    """What a caller says until a line with the sign, or its end."""
    command = [sys.executable, "-c", CALLER, address]
    said = ""
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        for line in process.stdout:
            said += line
            if sign in line:
                break
        process.kill()
    return said


@pytest.mark.long
def test_without_its_token_nobody_runs_code(cluster: tuple[str, Path], tmp_path: Path, short_folder: Path) -> None:
    address, home = cluster
    assert address.startswith("127.0.0.1:")
    token = home / ".ray" / "auth_token"
    assert token.read_text().strip()
    assert "ran 42" in _said(address, _environment(home, short_folder), "ran 42")
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    for mode in ({"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_TOKEN": "0" * 64}):
        said = _said(address, _environment(stranger, short_folder, **mode), "InvalidAuthToken")
        assert "InvalidAuthToken" in said and "ran" not in said.split(), said
