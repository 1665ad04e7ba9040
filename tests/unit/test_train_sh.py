"""sql_agent/train.sh: .env, defaults and flags, checked with the real script in a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHOW = """import json, os, sys
names = ("AGL_MANAGED_STORE", "TEACHER_MODEL", "TEACHER_API_KEY", "EVIL")
print(json.dumps({"args": sys.argv[1:], "cwd": os.getcwd(), **{name: os.environ.get(name) for name in names}}))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose train_sql_agent.py only says how it was called."""
    (tmp_path / "sql_agent").mkdir()
    (tmp_path / "sql_agent" / "train_sql_agent.py").write_text(SHOW)
    shutil.copy(ROOT / "sql_agent" / "train.sh", tmp_path / "sql_agent")
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    return tmp_path


def launch(project: Path, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    keep = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
    command = ["bash", str(project / "sql_agent" / "train.sh"), *flags]
    return subprocess.run(
        command, env={**keep, **env}, cwd=project.parent, capture_output=True, text=True, timeout=60, check=False
    )


def test_defaults_and_flags(project: Path, store: str) -> None:
    done = launch(project, "--ci-fast", STORE_ADDRESS=f"{store}/", N_GPUS="2", BASE_MODEL="/m/a b", RECIPE="qwen3_0_6b")
    seen = json.loads(done.stdout)
    assert seen["args"] == [
        *("--llm-proxy", "--external-store-address", store, "--n-gpus", "2"),
        *("--model", "/m/a b", "--recipe", "qwen3_0_6b", "--ci-fast"),
    ]
    assert seen["AGL_MANAGED_STORE"] == "0"
    assert seen["cwd"] == str(project.parent), "relative paths of flags are meant from where the user stands"


def test_env_file_is_data_and_the_environment_wins(project: Path, store: str) -> None:
    lines = [f"STORE_ADDRESS={store}", "TEACHER_MODEL=from file", "TEACHER_API_KEY='a b'  # key", "EVIL=$(echo ran)"]
    (project / ".env").write_text("\n".join([*lines, "N_GPUS="]))
    seen = json.loads(launch(project, TEACHER_MODEL="from environment", N_GPUS="3").stdout)
    assert (seen["TEACHER_MODEL"], seen["TEACHER_API_KEY"]) == ("from environment", "a b")
    assert seen["EVIL"] == "$(echo ran)"
    assert "--n-gpus 3" in " ".join(seen["args"])


@pytest.mark.parametrize("wait_s", ["abc", "1.5", "-1", "a[$(touch ran)]"])
def test_a_wait_that_is_no_number_is_told_and_not_run(project: Path, wait_s: str) -> None:
    (project / ".env").write_text(f"STORE_WAIT_S={wait_s}")
    done = launch(project, STORE_ADDRESS="http://127.0.0.1:1")
    assert (done.returncode, done.stderr) == (
        2,
        f"error: STORE_WAIT_S={wait_s}: must be a whole number of seconds\n",
    )
    assert not (project.parent / "ran").exists()


def test_no_store_is_an_error_with_a_remedy(project: Path) -> None:
    done = launch(project, STORE_ADDRESS="http://127.0.0.1:1", STORE_WAIT_S="0")
    assert done.returncode == 2 and done.stdout == ""
    assert "STORE_ADDRESS=http://127.0.0.1:1" in done.stderr and "agl store --host 127.0.0.1" in done.stderr


@pytest.mark.parametrize(
    "script", sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("*.sh")) + ["sql_agent/train.sh"]
)
def test_scripts_parse_and_stop_at_the_first_error(script: str) -> None:
    text = (ROOT / script).read_text()
    assert "set -euo pipefail" in text and os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True)
