"""From a database to a measured run in one command, killed while it trains. The model is untrained: no gain asked."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from sql_agent.config import COMMAND, ROOT
from sql_agent.mining.state import read_state
from sql_agent.tiny_policy.build import save_untrained
from sql_agent.tiny_policy.task import load_task
from tests.unit.test_mining import made_database

pytestmark = pytest.mark.slow
LIMIT_S = 1800.0  # against a hang; no measure of speed


def test_a_database_becomes_a_measured_run_although_it_is_killed(tmp_path: Path) -> None:
    path, out = made_database(tmp_path / "ships.db"), tmp_path / "ships"
    model = save_untrained(1, load_task(""), tmp_path / "model")
    flags = ["--out", str(out), "--model", str(model), "--questions", "60", "--steps", "1"]
    command = [*COMMAND, "mine", str(path), *flags, "--test-questions", "4", "--samples", "1"]
    first = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until_s = time.monotonic() + LIMIT_S
    while not (out / "runs").is_dir():
        assert first.poll() is None and time.monotonic() < until_s
        time.sleep(0.2)
    first.kill()
    first.wait()
    state = read_state(out)
    assert state and state.questions and not state.run
    questions = (out / "train.jsonl").read_bytes()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    state = read_state(out)
    assert state and state.evaluated and (out / "train.jsonl").read_bytes() == questions
    summary = json.loads((Path(state.run) / "summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "finished" and {*summary["delta"]} >= {"test/greedy", "test_tables/sampled"}
    assert (Path(state.run) / "model" / "config.json").is_file()
    assert f"talk to it: agentgrpo chat --recipe {out}" in done.stdout
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    assert again.returncode == 0 and again.stdout.splitlines()[-1] == f"run: {state.run}"
