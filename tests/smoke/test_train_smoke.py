"""One real GRPO step through agent-lightning, verl, Ray and vLLM on the CPU, as the README starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from sql_agent.config import ROOT

TRAIN_S = 2700.0  # where sources of the tiny policy changed, it is built first: minutes
SUMMARY_KEYS = {
    *("steps", "rollouts", "scored", "unscored", "triplets", "reward_mean", "reward_parts", "zero_variance_groups"),
    *("grad_norm", "loss", "weights_changed", "seconds", "peak_memory_gib", "model", "data", "versions"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """`make train` on a port of its own: store, data, tiny policy, one step."""
    from foundation.net import free_port

    runs = tmp_path_factory.mktemp("runs")
    done = subprocess.run(
        ["make", "train", f"PORT={free_port()}", f"ARGS=--ci-fast --set trainer.runs_dir={runs}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TRAIN_S,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    return done, runs


def test_the_step_really_trained(run: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, runs = run
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = runs.iterdir()
    assert done.stdout.rstrip().splitlines()[-2:] == [f"report: {folder / 'report.html'}", f"run: {folder}"]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary.keys() >= SUMMARY_KEYS
    assert summary["steps"] == 1 and summary["status"] == "finished"
    assert summary["triplets"] > 0 and summary["scored"] == summary["rollouts"] == 16
    assert summary["grad_norm"] > 0 and summary["weights_changed"] is True
    assert summary["seconds"]["total"] > summary["seconds"]["generation"] > 0
    assert summary["validation"][-1]["scored"] == 8


def test_the_folder_holds_the_run(run: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    (folder,) = run[1].iterdir()
    names = {path.name for path in folder.iterdir()}
    assert names >= {"config.json", "metrics.jsonl", "rollouts.jsonl", "summary.json", "train.log", "checkpoints"}
    assert "</html>" in (folder / "report.html").read_text(encoding="utf-8")
    assert list(folder.glob("checkpoints/global_step_1/actor/*.pt"))
    lines = [json.loads(line) for line in (folder / "rollouts.jsonl").read_text().splitlines()]
    train = [line for line in lines if line["mode"] == "train"]
    assert len(train) == 16 and any(line["sql_calls"] for line in train)
    called = next(line for line in train if line["sql_calls"])
    assert called["sql_calls"][0]["sql"] and called["judge"] and called["reward_parts"].keys() == {"sql", "answer"}


def test_nothing_is_left_running(run: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    (folder,) = run[1].iterdir()
    left = [p for p in psutil.process_iter(["cmdline"]) if any(str(folder) in part for part in p.info["cmdline"] or [])]
    assert left == []
