"""A run with rollout.async_groups, killed in the middle and continued: what its files, audit and replay say."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from agl_plugin.audit.verify import verify
from foundation import run_folder
from foundation.files import read_lines
from sql_agent.config import ROOT
from sql_agent.tiny_policy.build import ensure_tiny_policy
from tests.drills.conftest import training

pytestmark = pytest.mark.slow

ASYNC = [
    *("--set", "rollout.async_groups=3", "--set", "rollout.max_staleness=3", "--set", "trainer.keep_checkpoints=9"),
    *("--set", "optim.importance_correction=truncated", "--set", "trainer.max_steps=5"),
    *("--set", f"agent.episode={ROOT}/tests/drills/slow_tool.py:play"),
]


def test_a_killed_run_goes_on_and_asks_again_what_was_in_flight(tmp_path: Path) -> None:
    ensure_tiny_policy(1)
    with training(tmp_path / "runs", *ASYNC) as run:
        run.wait_for("checkpoint", 2)
        run.process.kill()
        run.end()
        first = run.folder
    n_before = max(run_folder.step_number(one) for one in run_folder.steps_of(first / run_folder.CHECKPOINTS))
    with training(tmp_path / "runs", *ASYNC, "--resume_checkpoint") as run:
        text = run.end()
        assert run.process.returncode == 0, text
        second, steps = run.folder, run.metrics("train")
    assert [line["step"] for line in steps] == list(range(n_before + 1, 6))
    dropped = [
        text for line in steps for text in line.get("warnings", []) if "are dropped, and asked again: ro-" in text
    ]
    assert len(dropped) == 1 and f"step {n_before + 1}" in dropped[0]
    asked = [
        {row["group"]: row["question_id"] for row in read_lines(folder / run_folder.ROLLOUTS) if row["step"] in of}
        for folder, of in ((first, range(1, n_before + 1)), (second, range(n_before + 1, 6)))
    ]
    lost = sum(line["rollout/asked_again"] for line in steps)
    counts = Counter([*asked[0].values(), *asked[1].values()])
    assert sum(counts.values()) == 2 * 5 + lost and max(counts.values()) <= 1 + lost  # no question is trained twice
    assert max(line["rollout/staleness_max"] for line in steps) <= 3
    assert steps[0]["rollout/groups_in_flight"] > 0
    for folder in (first, second):
        assert verify(folder).problems == []
    stale = next(line["step"] for line in reversed(steps) if line["rollout/staleness_max"] > 0)
    command = [sys.executable, "-m", "sql_agent", "audit", "replay", str(second), str(stale)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
