"""benchmarks/patches.py: calls are made both ways now and then, and what that saves is counted to a share of a step."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.patches import FOR_SPEED, figures_of
from benchmarks.support.paired import OFTEN, at_start, paired
from sql_agent.config import ROOT


def test_results_are_the_patched_functions_and_pairs_are_noted(tmp_path: Path) -> None:
    asked: list[str] = []

    def theirs(n: int) -> tuple[str, int]:
        asked.append("theirs")
        return ("slow", sum(range(200_000)) * 0 + n)

    both = paired("sampling_by_inversion", theirs, lambda n: ("fast", n), tmp_path)
    assert [both(n) for n in range(3 * OFTEN)] == [("fast", n) for n in range(3 * OFTEN)]
    assert len(asked) == 3
    (notes,) = tmp_path.glob("sampling_by_inversion-*.json")
    noted = json.loads(notes.read_text())
    assert noted["calls"] == 3 * OFTEN and len(noted["pairs"]) == 2  # the first warms up
    assert all(wall_s > 0 and cpu_s > 0 for wall_s, cpu_s in noted["pairs"])


def test_shares_are_calls_times_savings_over_the_step(tmp_path: Path) -> None:
    for pid, pairs in {1: [[0.01, 0.002]], 2: [[0.03, 0.004], [0.05, 0.009]]}.items():
        (tmp_path / f"sampling_by_inversion-{pid}.json").write_text(json.dumps({"calls": 100, "pairs": pairs}))
    found = figures_of(tmp_path, steps=4, step_s=2.0)
    assert found["sampling_by_inversion"] == pytest.approx(
        {"calls": 50, "pairs": 3, "wall_ms": 30.0, "cpu_ms": 4.0, "share": 0.1}
    )
    assert found["without_litellm"]["calls"] == 0 and set(found) == set(FOR_SPEED)
    assert "seeds_that_turn_back" not in FOR_SPEED


QUOTES = """
import email.utils
from agl_plugin.patches import install
from agl_plugin.patches.patch import Patch, Target
target = Target("email.utils:parseaddr", "email.utils:unquote", None)
install.PATCHES = (Patch("quotes", ("worker",), "verl", (target,), how="replaced", why="", until="", speed=True),)
install.install("worker")
assert [email.utils.parseaddr("A <a@example.org>") for _ in range({n})] == ["A <a@example.org>"] * {n}
"""


def test_a_process_measures_the_patches_that_it_makes(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(at_start(tmp_path, ROOT))
    code = QUOTES.format(n=3 * OFTEN)
    subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}, check=True
    )
    (notes,) = tmp_path.glob("quotes-*.json")
    noted = json.loads(notes.read_text())
    assert noted["calls"] == 3 * OFTEN and len(noted["pairs"]) == 2 and all(cpu_s > 0 for _, cpu_s in noted["pairs"])
