"""From supervised tuning through GRPO to a conversation, by the commands that a person types."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from foundation.files import write_lines
from sql_agent.config import RECIPES, ROOT
from sql_agent.data.dataset import load_questions

pytestmark = pytest.mark.slow
FLAGS = {
    "small": "--max_samples 5 --samples_per_prompt 2 --max_new_tokens 128 --total_epochs 2",
    "chain": "--model_path ./outputs/sft --dataset gsm8k --max_samples 4 --samples_per_prompt 2 --max_new_tokens 16 "
    "--total_epochs 1 --output_dir ./outputs/rl",
}


def typed(folder: Path, line: str, *, said: str = "") -> str:
    script, *flags = line.split()
    command = [sys.executable, str(ROOT / "scripts" / script), *flags]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, input=said)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_tiny_policy_learns_and_talks(tmp_path: Path) -> None:
    out = typed(tmp_path, f"train_gsm8k_agent.py {FLAGS['small']}")
    assert "run finished" in out
    rl = tmp_path / "outputs" / "Qwen2.5-0.5B" / "rl"
    assert sorted(path.name for path in rl.glob("epoch_*/model.safetensors")) == ["model.safetensors"] * 2
    assert json.loads((rl / "run.json").read_text())["recipe"] == "math_cpu"
    (question, *_) = load_questions(RECIPES / "math_cpu" / "val.jsonl")
    line = "test_interactive.py --model_path ./outputs/Qwen2.5-0.5B/rl/epoch_2 --max_new_tokens 48 --temperature 0.2"
    assert "→" in typed(tmp_path, line, said=f"{question.question}\n")  # it calls a tool
    again = typed(tmp_path, f"train_gsm8k_agent.py {FLAGS['small'].replace('_epochs 2', '_epochs 1')}")
    assert "replacing epoch_1, epoch_2" in again and not (rl / "epoch_2").exists()


def test_sft_first(tmp_path: Path) -> None:
    rows = [{"question": f"{n} + 1?", "answer": f"#### {n + 1}"} for n in range(6)]
    write_lines(tmp_path / "gsm8k" / "train.jsonl", rows)
    typed(tmp_path, "train_sft.py --dataset gsm8k --num_epochs 1 --output_dir ./outputs/sft")
    typed(tmp_path, f"train_gsm8k_agent.py {FLAGS['chain']}")
    assert (tmp_path / "outputs" / "rl" / "epoch_1" / "config.json").is_file()


def test_without_network_the_command_says_wtmp_path_files_go(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "train_gsm8k_agent.py"), "--dataset", "gsm8k"]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert f"put them at {tmp_path}/gsm8k/train.jsonl" in done.stderr and "give the path of a file" in done.stderr
