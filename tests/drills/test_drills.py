"""What a person sees when something is killed, interrupted or full in the middle of a training run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from foundation import run_folder
from foundation.files import read_lines
from sql_agent.tiny_policy.build import ensure_tiny_policy
from tests.drills.conftest import SMALL, START_S, Training, gone, taken, training, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def policy() -> Path:
    """The runs' model, built before their time counts."""
    return ensure_tiny_policy(1)


def questions_by_step(folder: Path) -> dict[int, list[str]]:
    """Step -> the ids of its training questions, each once, sorted."""
    rows: list[dict[str, Any]] = read_lines(folder / run_folder.ROLLOUTS)
    steps = sorted({row["step"] for row in rows})
    return {step: sorted({row["question_id"] for row in rows if row["step"] == step}) for step in steps}


def test_a_killed_job_leaves_no_process_and_resumes_with_the_same_data(tmp_path: Path) -> None:
    with training(tmp_path / "whole" / "runs", "--set", "trainer.max_steps=4") as run:
        assert "run: " in run.end() and run.process.returncode == 0
        whole = questions_by_step(run.folder)
    with training(tmp_path / "cut" / "runs", "--set", "trainer.max_steps=4") as run:
        run.wait_for("checkpoint", 2)
        tree = psutil.Process(run.process.pid).children(recursive=True)
        run.process.kill()
        run.end()
        assert len(tree) > 15 and gone(tree) == []
        first = run.folder
    with training(tmp_path / "cut" / "runs", "--set", "trainer.max_steps=4", "--resume_checkpoint") as run:
        text = run.end()
        assert run.process.returncode == 0, text
        resumed, summary = questions_by_step(run.folder), run.summary()
    assert run.folder != first and summary["status"] == "finished" and summary["last_step"] == 4
    assert resumed and min(resumed) >= 3 and resumed == {step: whole[step] for step in resumed}


def test_a_store_that_dies_is_named(tmp_path: Path) -> None:
    with training(tmp_path / "runs", "--set", "trainer.max_steps=50") as run:
        run.wait_for("train", 1)
        tree = psutil.Process(run.process.pid).children(recursive=True)
        assert run.store is not None
        run.store.kill()
        text = run.end()
        assert run.process.returncode == 1 and run.summary()["status"] == "failed"
        assert "stopped answering" in text and "--resume" in text
        assert gone(tree) == []


def test_a_run_goes_on_over_a_store_that_is_killed(tmp_path: Path) -> None:
    """Twice, once while the first rollouts are played, within store.patience_s."""
    limits = ["--set", "trainer.max_steps=4", "--set", "store.patience_s=120"]
    with training(tmp_path / "runs", *limits) as run:
        until(lambda: taken(tmp_path / "store.db") > 0 or run.process.poll() is not None, timeout_s=2 * START_S)
        run.restart_store()
        run.wait_for("train", 2)
        run.restart_store()
        text = run.end()
        rows, summary = read_lines(run.folder / run_folder.ROLLOUTS), run.summary()
    assert run.process.returncode == 0 and summary["status"] == "finished", text
    assert len({row["rollout_id"] for row in rows}) == len(rows) == summary["rollouts"] == 16
    assert summary["scored"] == 16


def test_a_vllm_that_dies_is_named(tmp_path: Path) -> None:
    with training(tmp_path / "runs", "--set", "trainer.max_steps=50") as run:
        run.wait_for("train", 1)
        tree = psutil.Process(run.process.pid).children(recursive=True)
        (engine,) = run.children("VLLM::EngineCore")
        engine.kill()
        text = run.end()
        assert run.process.returncode == 1 and run.summary()["status"] == "failed"
        assert "vLLM" in text or "model server" in text
        assert gone(tree) == []


def test_a_run_goes_on_without_the_gateway_that_was_killed(tmp_path: Path) -> None:
    """Killed once a step has ended: the next one starts another."""
    with training(tmp_path / "runs", "--set", "trainer.max_steps=3") as run:
        run.wait_for("train", 1)
        trainer = {p.pid: p for p in run.children("ray::train")}
        (gateway,) = [p for p in trainer.values() if p.ppid() in trainer]
        gateway.kill()
        text = run.end()
        summary = run.summary()
    assert run.process.returncode == 0 and summary["status"] == "finished", text
    assert summary["last_step"] == 3 and summary["scored"] > 8


def test_a_run_goes_on_over_a_gateway_that_is_killed_in_the_middle_of_a_step(tmp_path: Path) -> None:
    """Killed while the first rollouts are played: it is started again, and what was lost is played again."""
    with training(tmp_path / "runs", "--set", "trainer.max_steps=2", "--set", "rollout.group_size=16") as run:
        until(lambda: taken(tmp_path / "store.db") > 0 or run.process.poll() is not None, timeout_s=2 * START_S)
        trainer = {p.pid: p for p in run.children("ray::train")}
        (gateway,) = [p for p in trainer.values() if p.ppid() in trainer]
        gateway.kill()
        text = run.end()
        summary = run.summary()
    assert run.process.returncode == 0 and summary["status"] == "finished", text
    assert summary["rollouts"] == summary["scored"] == 64 and summary["last_step"] == 2
    assert "warning: step 1: the LLM proxy died 1 x and was started again" in text and "token ids" not in text


def test_a_runner_that_dies_costs_nothing(tmp_path: Path) -> None:
    with training(tmp_path / "runs", "--set", "trainer.max_steps=3") as run:
        run.wait_for("train", 1)
        watchers = [p for p in psutil.Process(run.process.pid).children() if "train_sql_agent" in " ".join(p.cmdline())]
        (worker,) = [child for watcher in watchers for child in watcher.children()]
        worker.kill()
        run.end()
        summary = run.summary()
        assert run.process.returncode == 0 and summary["status"] == "finished"
        assert summary["rollouts"] == summary["scored"] == 12


def test_one_ctrl_c_ends_in_order(tmp_path: Path) -> None:
    with training(tmp_path / "runs", "--set", "trainer.max_steps=50") as run:
        run.wait_for("train", 1)
        tree = psutil.Process(run.process.pid).children(recursive=True)
        run.process.send_signal(signal.SIGINT)
        text = run.end()
        assert run.process.returncode == 130 and run.summary()["status"] == "interrupted"
        assert text.rstrip().splitlines()[-1] == f"run: {run.folder}"
        assert gone(tree) == []


def test_a_terminated_run_with_a_store_of_its_own_ends_whole(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    settings = [*SMALL, "--set", "trainer.max_steps=50", "--set", f"trainer.runs_dir={runs}"]
    command = [sys.executable, "-m", "sql_agent", "train", *settings]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    run = Training(process=process, runs=runs)
    run.wait_for("train", 1)
    tree = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    text = run.end()
    assert process.returncode == 130 and run.summary()["status"] == "interrupted", text
    assert text.rstrip().splitlines()[-1] == f"run: {run.folder}"
    assert gone(tree) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("a file system of its own needs root and mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_fills_up_stops_the_run_and_keeps_the_last_checkpoint(small_disk: Path, tmp_path: Path) -> None:
    with training(small_disk / "runs", "--set", "trainer.max_steps=50") as run:
        run.wait_for("checkpoint", 1)
        with pytest.raises(OSError, match="No space"), (small_disk / "filler").open("wb", buffering=0) as filler:
            while filler.write(b"\0" * 2**20):
                pass
        text = run.end()
        assert run.process.returncode == 1 and "No space left" in text
        assert "run: " in text.splitlines()[-1]
        (small_disk / "filler").unlink()
        steps = {path.name for path in (run.folder / "checkpoints").glob("global_step_*")}
    assert steps
