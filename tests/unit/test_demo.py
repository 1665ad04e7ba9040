"""A part of the demo that is told to end is waited for, and what a fault left unscored is played again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sql_agent.commands.demo import held_out

PART = """
import signal, sys, time

def end(*_):
    print("ends in order", flush=True)
    sys.exit(130)

signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(60)
"""
DEMO = f"import sys; from sql_agent.commands.demo import run; run(sys.executable, '-c', {PART!r})"


@pytest.mark.long
def test_a_sigterm_reaches_the_running_part_and_its_last_words_are_shown() -> None:
    command = [sys.executable, "-c", DEMO]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline() == "ready\n"
        demo.send_signal(signal.SIGTERM)
        assert demo.communicate(timeout=30)[0] == "ends in order\n"
        assert demo.returncode != 0


def test_a_recipe_with_questions_of_its_own_is_measured_with_them() -> None:
    assert [file.name for file in held_out("math_cpu")] == ["test_entities.jsonl", "test.jsonl"]
    assert held_out("demo_cpu") == []


# `agentgrpo` of which the first evaluation leaves trials unscored, and the later ones as many as they are told.
COMMAND = """
import sys
from pathlib import Path

folder, later, asked = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
with (folder / "asked").open("a") as file:
    print(*asked, file=file)
evaluation = folder / "evaluation"
if asked[0] == "evaluate":
    evaluation.mkdir(exist_ok=True)
    (evaluation / "plan.json").touch()
    (evaluation / "results.json").touch()
    sys.exit(later if "--resume" in asked else 1)
"""
MEASURE = """
import sys
from pathlib import Path
from sql_agent.commands import demo

folder, part, later = Path(sys.argv[1]), *sys.argv[2:]
demo.COMMAND = (sys.executable, part, str(folder), later)
demo.rewards, demo.EvalReport = (lambda results: {"before": 1}), type("Results", (), {"read": staticmethod(Path)})
demo.conclude(folder, before="tiny", plan=[])
"""


@pytest.mark.long
@pytest.mark.parametrize("later", [0, 1])
def test_trials_that_a_fault_left_unscored_are_played_once_more(later: int, tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    (part := tmp_path / "part.py").write_text(COMMAND)
    done = subprocess.run([sys.executable, "-c", MEASURE, tmp_path, part, str(later)], capture_output=True, check=False)
    first, *resumed = (tmp_path / "asked").read_text().splitlines()
    assert first.startswith("evaluate --before tiny")
    assert resumed[0] == f"evaluate --resume {tmp_path / 'evaluation'}"
    assert (done.returncode != 0, len(resumed)) == (bool(later), 2 - later), done.stderr
    assert json.loads((tmp_path / "summary.json").read_text()) == ({} if later else {"before": 1})
