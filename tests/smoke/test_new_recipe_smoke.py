"""A recipe of `python -m recipes.new` trains a step as it stands, from a folder outside the project."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from recipes.new import make_recipe
from sql_agent.config import ROOT

pytestmark = pytest.mark.slow


def test_a_new_recipe_trains_a_step(tmp_path: Path) -> None:
    made, runs = make_recipe("shop", tmp_path), tmp_path / "runs"
    flags = ["--recipe", str(made), "--ci-fast", "--set", f"trainer.runs_dir={runs}"]
    command = [sys.executable, "-m", "sql_agent", "train", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = runs.iterdir()
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert (summary["status"], summary["steps"], summary["scored"], summary["rollouts"]) == ("finished", 1, 16, 16)
    assert summary["validation"][-1]["scored"] == 8 and summary["triplets"] >= 16
    lines = [json.loads(line) for line in (folder / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 24 and all(line["reward_parts"].keys() == {"answer"} for line in lines)
