"""benchmarks/patches.py: calls are made both ways now and then, and what that saves is counted to a share of a step."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.patches import FOR_SPEED, figures_of
from benchmarks.support import paired as paired_calls
from benchmarks.support.paired import OFTEN, at_start, by_spell, paired
from sql_agent.config import ROOT


def test_results_are_the_patched_functions_and_pairs_are_noted(tmp_path: Path) -> None:
    asked: list[str] = []

    def theirs(n: int) -> tuple[str, int]:
        asked.append("theirs")
        return ("slow", sum(range(200_000)) * 0 + n)

    both = paired("templates_once", theirs, lambda n: ("fast", n), tmp_path)
    assert [both(n) for n in range(3 * OFTEN)] == [("fast", n) for n in range(3 * OFTEN)]
    assert len(asked) == 3
    (notes,) = tmp_path.glob("templates_once-*.json")
    noted = json.loads(notes.read_text())
    assert noted["calls"] == 3 * OFTEN and len(noted["pairs"]) == 2  # the first warms up
    assert all(wall_s > 0 and cpu_s > 0 for wall_s, cpu_s in noted["pairs"])


def test_whole_spells_of_calls_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0

    def takes(seconds: float, result: str = "") -> str:
        nonlocal now_s
        now_s += seconds
        return result

    clock = SimpleNamespace(perf_counter=lambda: now_s, monotonic=time.monotonic)
    monkeypatch.setattr(paired_calls, "time", clock)
    one = by_spell("a_core_for_others", lambda: takes(0.5, "theirs"), lambda: takes(0.2, "ours"), tmp_path)
    said: list[set[str]] = []
    for _ in range(5):
        said.append({one() for _ in range(3)})
        takes(paired_calls.PAUSE_S + 0.1)
    assert said == [{"ours"}, {"theirs"}, {"ours"}, {"theirs"}, {"ours"}]
    (notes,) = tmp_path.glob("a_core_for_others-*.json")
    assert json.loads(notes.read_text())["pairs"] == [pytest.approx([0.3, 0.3])]  # of two pairs the first warms up


def test_shares_are_calls_times_savings_over_the_step(tmp_path: Path) -> None:
    for pid, pairs in {1: [[0.01, 0.002]], 2: [[0.03, 0.004], [0.05, 0.009]]}.items():
        (tmp_path / f"templates_once-{pid}.json").write_text(json.dumps({"calls": 100, "pairs": pairs}))
    found = figures_of(tmp_path, steps=4, step_s=2.0)
    assert found["templates_once"] == pytest.approx(
        {"calls": 50, "pairs": 3, "wall_ms": 30.0, "cpu_ms": 4.0, "share": 0.1}
    )
    assert found["a_core_for_others"]["calls"] == 0 and set(found) == set(FOR_SPEED)
    assert "seeds_that_turn_back" not in FOR_SPEED


def test_a_process_measures_the_patches_that_it_makes(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(at_start(tmp_path, ROOT))
    code = (
        "from agl_plugin.patches.install import install; install('cpu'); "
        "import verl.utils.memory_utils as m; [m.aggressive_empty_cache() for _ in range(3)]"
    )
    subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}, check=True
    )
    (notes,) = tmp_path.glob("no_cache_emptying-*.json")
    noted = json.loads(notes.read_text())
    assert noted["calls"] == 3 and len(noted["pairs"]) == 2 and all(cpu_s > 0 for _, cpu_s in noted["pairs"])
