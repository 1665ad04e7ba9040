"""Training runs as a person starts them, small, and ways to break them."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from foundation import run_folder
from foundation.files import read_lines
from foundation.net import free_port
from sql_agent.config import ROOT
from tests.loop.conftest import QUIET, wait_until_up

SMALL = [
    *("--recipe", "demo_cpu", "--set", "rollout.group_size=2", "--set", "optim.questions_per_step=2"),
    *("--set", "optim.mini_batch_questions=2", "--set", "optim.micro_batch_rows=2", "--set", "data.val_max_rows=2"),
    *("--set", "trainer.validate_first=false", "--set", "trainer.validate_every=-1", "--set", "trainer.save_every=1"),
    *("--set", "rollout.max_num_seqs=8", "--set", "rollout.rollout_timeout_s=60"),
]
# Against a run that hangs, no measure of its speed: a busy machine takes several times what a quiet one does.
START_S, STEP_S, END_S = 1200.0, 600.0, 300.0


@dataclass
class Training:
    """A run in the background. `store` is the process of its store, where the test started one."""

    process: subprocess.Popen[str]
    runs: Path
    store: subprocess.Popen[bytes] | None = None
    start_store: Callable[[], subprocess.Popen[bytes]] | None = None

    @property
    def folder(self) -> Path:
        """The newest run folder."""
        return max(self.runs.iterdir(), key=lambda path: path.name)

    def metrics(self, kind: str) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl of one kind so far."""
        folders = list(self.runs.iterdir()) if self.runs.exists() else []
        lines = read_lines(self.folder / run_folder.METRICS) if folders else []
        return [line for line in lines if line["kind"] == kind]

    def restart_store(self) -> None:
        """kill -9, and the same store again."""
        assert self.store and self.start_store
        self.store.kill()
        self.store.wait()
        self.store = self.start_store()

    def wait_for(self, kind: str, n: int) -> None:
        """Until `n` lines of this kind are there."""
        deadline = time.monotonic() + START_S
        while len(self.metrics(kind)) < n:
            assert self.process.poll() is None, self.end()
            assert time.monotonic() < deadline, f"no {kind} number {n}"
            time.sleep(0.1)

    def children(self, mark: str) -> list[psutil.Process]:
        """Descendants whose command line or name has `mark` in it."""
        tree = psutil.Process(self.process.pid).children(recursive=True)
        return [p for p in tree if mark in " ".join(p.cmdline()) or mark in p.name()]

    def end(self) -> str:
        """Wait for the end and return what was printed."""
        return self.process.communicate(timeout=END_S + STEP_S)[0]

    def summary(self) -> dict[str, Any]:
        """summary.json."""
        return json.loads((self.folder / run_folder.SUMMARY).read_text())


@contextmanager
def training(runs: Path, *settings: str) -> Iterator[Training]:
    """A store and a training run against it; afterwards both are gone, and so is every process of the run."""
    address = f"http://127.0.0.1:{free_port()}"
    command = [
        *(sys.executable, str(ROOT / "sql_agent" / "train_sql_agent.py"), "--external-store-address", address),
        *(*SMALL, "--set", f"trainer.runs_dir={runs}", *settings),
    ]
    runs.parent.mkdir(parents=True, exist_ok=True)
    place = ["--port", address.rpartition(":")[2], "--path", str(runs.parent / "store.db")]
    with (runs.parent / "store.log").open("ab") as log:

        def start_store() -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", "agl_plugin.store", *place]
            return subprocess.Popen(command, stdout=log, stderr=log, env=QUIET, cwd=ROOT)

        store = start_store()
        wait_until_up(f"{address}/v1/agl/health", store)
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, **QUIET, "AGL_MANAGED_STORE": "0"},
        )  # fmt: skip
        run = Training(process=process, store=store, runs=runs, start_store=start_store)
        try:
            yield run
        finally:
            for left in (process, run.store):
                if left and left.poll() is None:
                    left.send_signal(signal.SIGTERM)
                    left.wait(END_S)


def gone(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those of `processes` that still live after 40 s: left to itself, Ray's agent looks for its server for 60 s."""
    return psutil.wait_procs(processes, timeout=40)[1]


def until(done: Callable[[], bool], *, timeout_s: float = STEP_S) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def taken(path: Path) -> int:
    """How many rollouts a runner has taken."""
    with closing(sqlite3.connect(path)) as store:
        return store.execute("SELECT count(*) FROM attempts").fetchone()[0]
