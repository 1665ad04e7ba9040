"""The console of a run: output of the process and its children goes to the log, one line per event to the person."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from agl_plugin.run.progress import Progress, describe
from foundation import run_folder
from foundation.console import Heartbeat, duration
from foundation.files import append_lines
from sql_agent.config import ROOT

TRAIN = {
    "kind": "train",
    "step": 3,
    "of_steps": 20,
    "seconds": 12.4,
    "rollout/rollouts": 32,
    "rollout/scored": 30,
    "rollout/reward_mean": 0.5,
    "rollout/reward_parts/sql": 0.1,
    "rollout/reward_parts/answer": 0.4,
    "actor/grad_norm": 0.25,
}
VALIDATION = {
    **{"kind": "val", "step": 0, "of_steps": 20, "seconds": 3.0},
    **{"val/rollouts": 8, "val/scored": 8, "val/reward_mean": 0.25, "val/reward_parts/sql": 0.05},
}

NOISY = """
import os, subprocess, sys
from pathlib import Path
from foundation.console import quiet
with quiet(Path(sys.argv[1])) as console:
    print("python out"); print("python err", file=sys.stderr)
    os.write(1, b"descriptor out\\n")
    subprocess.run([sys.executable, "-c", "print('child out'); import sys; print('child err', file=sys.stderr)"])
    console.print("for people", "高血压")
    {inside}
print("after", flush=True)
print("after err", file=sys.stderr)
"""


def run_noisy(log: Path, inside: str) -> subprocess.CompletedProcess[str]:
    code = NOISY.replace("{inside}", inside)
    return subprocess.run([sys.executable, "-c", code, str(log)], capture_output=True, text=True, timeout=60)


def test_noise_goes_to_the_log_and_words_to_the_person(tmp_path: Path) -> None:
    done = run_noisy(tmp_path / "train.log", "pass")
    assert (done.returncode, done.stdout, done.stderr) == (0, "for people 高血压\nafter\n", "after err\n")
    log = (tmp_path / "train.log").read_text(encoding="utf-8")
    assert {"python out", "python err", "descriptor out", "child out", "child err"} <= set(log.splitlines())
    assert "for people" not in log and "after" not in log


def test_an_exception_gives_the_terminal_back(tmp_path: Path) -> None:
    done = run_noisy(tmp_path / "train.log", "raise SystemExit('stop')")
    assert done.returncode == 1 and done.stderr == "stop\n"
    assert "stop" not in (tmp_path / "train.log").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (41.6, "42s"), (59.7, "1m00s"), (60, "1m00s"), (185, "3m05s"), (3599.6, "1h00m"), (7800, "2h10m")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@given(st.floats(0, 1e6))
def test_durations_never_show_sixty_of_anything(seconds: float) -> None:
    assert not re.search(r"\b60[ms]|h60m|m60s", duration(seconds))


NO_REWARD = {k: v for k, v in TRAIN.items() if "reward" not in k} | {"rollout/scored": 0, "actor/grad_norm": None}
CHECKPOINT = {"kind": "checkpoint", "step": 20, "of_steps": 20, "seconds": 61}
TRAINED = "step 3/20  reward 0.500 (sql 0.100 + answer 0.400)  scored 30/32  12s"


@pytest.mark.parametrize(
    ("row", "eta_s", "line"),
    [
        (TRAIN, 210.0, f"{TRAINED}  grad 0.25  ETA 3m30s"),
        # NaN is null in metrics.jsonl.
        ({**TRAIN, "actor/grad_norm": None}, 1.0, f"{TRAINED}  grad none  ETA 1s"),
        (NO_REWARD, None, "step 3/20  reward none  scored 0/32  12s  grad none  ETA 0s"),
        (VALIDATION, None, "validation at step 0  reward 0.250 (sql 0.050)  scored 8/8  3s"),
        (CHECKPOINT, None, "step 20/20  checkpoint saved in 1m01s"),
        ({**CHECKPOINT, "kind": "val"}, None, ""),  # without rollouts
    ],
)
def test_an_event_is_one_line(row: dict[str, Any], eta_s: float | None, line: str) -> None:
    assert describe(row, eta_s=eta_s) == line


def test_a_warning_is_a_line_of_its_own(tmp_path: Path) -> None:
    out = StringIO()
    with Progress(Console(file=out, width=200), tmp_path):
        append_lines(tmp_path / run_folder.METRICS, [{**TRAIN, "warnings": ["step 3: [x] is low"]}])
    assert "\nwarning: step 3: [x] is low\n" in out.getvalue()


def test_progress_prints_each_event_once_and_in_order(tmp_path: Path) -> None:
    out = StringIO()
    metrics = tmp_path / run_folder.METRICS
    with Progress(Console(file=out, width=200), tmp_path):
        append_lines(metrics, [VALIDATION])
        deadline = time.monotonic() + 10
        while "validation" not in out.getvalue() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "validation at step 0" in out.getvalue()
        append_lines(metrics, [{**TRAIN, "step": step, "seconds": 10.0} for step in (1, 2)])
    text = out.getvalue()
    marks = ["starting Ray", "first result after", "validation at step 0", "step 1/20", "step 2/20", "ETA 3m00s"]
    assert [text.index(mark) for mark in marks] == sorted(text.index(mark) for mark in marks)
    assert all(text.count(mark) == 1 for mark in marks)


def test_without_a_terminal_a_wait_is_told_from_time_to_time() -> None:
    text = StringIO()
    console = Console(file=text)
    with Heartbeat(console, lambda: "waiting for Ray", every_s=0.2) as heartbeat:
        time.sleep(0.1)
        heartbeat.line_printed()
        time.sleep(0.15)
        assert text.getvalue() == ""
        time.sleep(1.0)
    assert 2 <= text.getvalue().count("waiting for Ray, ") <= 6


def test_a_terminal_gets_no_lines_of_waiting() -> None:
    text = StringIO()
    with Heartbeat(Console(file=text, force_terminal=True), lambda: "waiting", every_s=0.05):
        time.sleep(0.3)
    assert text.getvalue() == ""


LAST_WORDS = """
import sys, threading, time
from pathlib import Path
from foundation.console import close_output, own_terminal

terminal = own_terminal()
print("before", flush=True)
close_output(Path(sys.argv[1]))
print("a thread goes on", flush=True)
print("and its errors", file=sys.stderr, flush=True)
terminal.print("run: FOLDER")
"""


def test_nothing_comes_below_the_last_words(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    command = [sys.executable, "-c", LAST_WORDS, str(log)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "before\nrun: FOLDER\n" and done.stderr == ""
    assert log.read_text(encoding="utf-8") == "a thread goes on\nand its errors\n"


def test_a_warning_is_told_without_the_module_that_has_it() -> None:
    said = "import logging; from foundation.console import log_warnings; log_warnings(); logging.getLogger('a').warning"
    done = subprocess.run([sys.executable, "-c", f"{said}('look')"], capture_output=True, text=True, check=True)
    assert done.stderr == "warning: look\n"
