"""The try-out command with a model that it serves itself: vLLM starts, answers, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from sql_agent.data.build import build_bundled
from sql_agent.tiny_policy.tokenizer import train_tokenizer
from sql_agent.tiny_policy.train import build_model

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow
LIMIT_S = 600.0  # against a hang; no measure of speed


@pytest.fixture(scope="module")
def random_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny policy's architecture and chat template with random weights."""
    folder = tmp_path_factory.mktemp("models") / "random-policy"
    tokenizer = train_tokenizer(["SELECT med_name FROM drugs_info", "依据查询结果作答。"])
    torch.manual_seed(0)
    build_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    build_bundled()
    return folder


def start(folder: Path, logs: Path) -> subprocess.Popen[str]:
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "TEACHER_"))}
    command = [
        sys.executable,
        "sqlagent_test.py",
        "--base-url",
        "",
        "--model",
        str(folder),
        "--question",
        "q",
        "--json",
    ]
    # A shell may have started us with SIGINT ignored, which children inherit.
    return subprocess.Popen(
        [*command, "--max-tokens", "16", "--set", "trainer.device=cpu"],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        cwd=ROOT / "sql_agent",
        env={**keep, "TMPDIR": str(logs)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def serving_processes(folder: Path) -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if str(folder) in (p.info["cmdline"] or [])]


def test_a_folder_is_served_and_asked(random_policy: Path, tmp_path: Path) -> None:
    out, err = start(random_policy, tmp_path).communicate(timeout=LIMIT_S)
    row = json.loads(out)
    assert row["n_turns"] >= 1 and row["stop_reason"] != "fault", err
    assert "random-policy at http://127.0.0.1:" in err
    assert list(tmp_path.glob("vllm-*.log")) == []
    assert serving_processes(random_policy) == []


def test_ctrl_c_while_vllm_starts(random_policy: Path, tmp_path: Path) -> None:
    process = start(random_policy, tmp_path)
    deadline_s = time.monotonic() + LIMIT_S
    while not (servers := [p for p in serving_processes(random_policy) if p.pid != process.pid]):
        assert process.poll() is None and time.monotonic() < deadline_s
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130 and "interrupted" in err
    assert psutil.wait_procs(servers, timeout=60)[1] == []
    assert list(tmp_path.glob("vllm-*.log")) == []
