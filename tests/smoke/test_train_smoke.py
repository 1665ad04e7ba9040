"""One real GRPO step through agent-lightning, verl, Ray and vLLM on the CPU, as the README starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import closing, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest

from agl_plugin.audit.schema import opened
from agl_plugin.audit.verify import verify
from sql_agent.config import ROOT
from sql_agent.run_audit.chain import Chain

LOOK_EVERY_S = 2.0
TRAIN_S = 2700.0  # where sources of the tiny policy changed, it is built first: minutes
SUMMARY_KEYS = {
    *("steps", "rollouts", "scored", "unscored", "triplets", "reward_mean", "reward_parts", "zero_variance_groups"),
    *("grad_norm", "loss", "weights_changed", "seconds", "peak_memory_gib", "model", "data", "versions"),
}


@dataclass(frozen=True)
class Run:
    """What `make train` said and left; `listeners`: program -> addresses at which one of its processes listened;
    `makers`: the commands of the processes that made verl's workers and vLLM's engines.
    """

    status: int
    stdout: str
    stderr: str
    runs: Path
    listeners: dict[str, set[str]]
    makers: set[str]

    @property
    def folder(self) -> Path:
        """The one run folder."""
        (folder,) = self.runs.iterdir()
        return folder


def note_listeners(process: psutil.Process, listeners: dict[str, set[str]]) -> None:
    """Add the TCP addresses, of IPv4 and IPv6, at which the descendants of a process listen now."""
    for child in process.children(recursive=True):
        with suppress(psutil.Error):
            connections = child.net_connections("tcp")
            found = {c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN}
            listeners[child.name()] |= found


def note_makers(process: psutil.Process, makers: set[str]) -> None:
    """Add the commands of the parents of verl's workers and vLLM's engines among the descendants of a process."""
    for child in process.children(recursive=True):
        with suppress(psutil.Error):
            parent = child.parent()
            if child.name().startswith(("VLLM::EngineCor", "ray::GrpoWorker")) and parent:
                makers.add(" ".join(parent.cmdline()))


def is_local(text: str) -> bool:
    """Whether an address, maybe an IPv4 one in the words of IPv6, is this machine's loopback."""
    address = ip_address(text)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """`make train`: store, data, tiny policy, one step."""
    runs, logs = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("logs")
    command = ["make", "train", f"ARGS=--ci-fast --set trainer.runs_dir={runs}"]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    listeners: dict[str, set[str]] = defaultdict(set)
    makers: set[str] = set()
    deadline_s = time.monotonic() + TRAIN_S
    with (logs / "stdout").open("w") as stdout, (logs / "stderr").open("w") as stderr:
        process = psutil.Popen(command, cwd=ROOT, stdout=stdout, stderr=stderr, env=environment)
        while process.poll() is None:
            assert time.monotonic() < deadline_s, (logs / "stderr").read_text()
            note_listeners(process, listeners)
            note_makers(process, makers)
            time.sleep(LOOK_EVERY_S)
    said = (logs / "stdout").read_text(), (logs / "stderr").read_text()
    return Run(process.returncode, *said, runs, listeners, makers)


def test_the_step_really_trained(run: Run) -> None:
    assert run.status == 0, run.stdout + run.stderr
    folder = run.folder
    assert run.stdout.rstrip().splitlines()[-2:] == [f"report: {folder / 'report.html'}", f"run: {folder}"]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary.keys() >= SUMMARY_KEYS
    assert summary["steps"] == 1 and summary["status"] == "finished"
    assert summary["triplets"] > 0 and summary["scored"] == summary["rollouts"] == 16
    assert summary["grad_norm"] > 0 and summary["weights_changed"] is True
    assert summary["seconds"]["total"] > summary["seconds"]["generation"] > 0
    assert summary["validation"][-1]["scored"] == 8


def test_the_sampler_has_the_policy_s_own_probabilities(run: Run) -> None:
    """Of each sampled token, in float32: other weights, a grammar or a masked token would show here."""
    step = next(
        json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines() if '"train"' in line
    )
    assert step["sampler/log_prob_diff_max"] < 1e-3


def test_the_folder_holds_the_run(run: Run) -> None:
    folder = run.folder
    names = {path.name for path in folder.iterdir()}
    assert names >= {"config.json", "metrics.jsonl", "rollouts.jsonl", "summary.json", "train.log", "checkpoints"}
    assert "</html>" in (folder / "report.html").read_text(encoding="utf-8")
    assert list(folder.glob("checkpoints/global_step_1/actor/*.pt"))
    lines = [json.loads(line) for line in (folder / "rollouts.jsonl").read_text().splitlines()]
    train = [line for line in lines if line["mode"] == "train"]
    assert len(train) == 16 and any(line["sql_calls"] for line in train)
    called = next(line for line in train if line["sql_calls"])
    assert called["sql_calls"][0]["sql"] and called["judge"] and called["reward_parts"].keys() == {"sql", "answer"}


def test_the_audit_of_the_run_holds(run: Run) -> None:
    """All rows, masks and advantages once more, from what vLLM saw and sampled."""
    found = verify(run.folder)
    assert found.problems == [] and found.notes == []
    assert found.counts["rows"] >= 8 and found.counts["calls"] > 16 and found.counts["updates"] == 1
    with closing(opened(run.folder)) as connection:
        (rollout,) = connection.execute("SELECT rollout_id FROM train_row WHERE used LIMIT 1").fetchone()
        told = "\n".join(Chain(connection, rollout, folder=run.folder).lines())
    assert "weights after 0 updates" in told and "checkpoints/global_step_1\n" in told and "no longer there" not in told


def test_workers_and_engines_are_forked_of_one_process_that_has_loaded(run: Run) -> None:
    (maker,) = run.makers
    assert "preloaded.main()" in maker and "agl_plugin.run.loaded" in maker


def test_runners_end_at_once_with_the_run(run: Run) -> None:
    """For their last requests the store still answers."""
    assert "Subprocesses still alive" not in (run.folder / "train.log").read_text(encoding="utf-8")


def test_the_update_is_repeated_without_vllm(run: Run) -> None:
    """From the start model, in a process of its own."""
    command = [sys.executable, "-m", "sql_agent", "audit", "replay", str(run.folder), "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TRAIN_S)
    assert done.returncode == 0, done.stdout + done.stderr
    before = next(line for line in done.stdout.splitlines() if line.startswith("weights_before: "))
    stored, _, now = before.removeprefix("weights_before: ").partition(" in the run, ")
    assert now == f"{stored} now" and "ok: the same update" in done.stdout


def test_nothing_is_left_running(run: Run) -> None:
    folder = run.folder
    left = [p for p in psutil.process_iter(["cmdline"]) if any(str(folder) in part for part in p.info["cmdline"] or [])]
    assert left == []


def test_nothing_listens_beyond_the_machine(run: Run) -> None:
    """Ray, vLLM, proxy and store, from start to end: who has its token runs code (SECURITY.md)."""
    assert {"gcs_server", "raylet"} <= {program for program, addresses in run.listeners.items() if addresses}
    beyond = {(program, a) for program, found in run.listeners.items() for a in found if not is_local(a)}
    assert beyond == set()


@pytest.mark.slow
def test_a_run_learns_from_what_another_stored_as_that_one_did(run: Run, tmp_path: Path) -> None:
    stored = ["--set", f"data.from_store={run.folder}", "--set", "optim.importance_correction=truncated"]
    command = ["train", "--ci-fast", "--set", f"trainer.runs_dir={tmp_path}", *stored]
    subprocess.run([sys.executable, "-m", "sql_agent", *command], cwd=ROOT, check=True, capture_output=True)
    (folder,) = tmp_path.iterdir()
    first, again = (json.loads((one / "summary.json").read_text()) for one in (run.folder, folder))
    assert again["scored"] == 16 and again["reward_mean"] == first["reward_mean"] and again["weights_changed"] is True
    assert again["grad_norm"] == pytest.approx(first["grad_norm"], rel=1e-3)
    assert verify(folder).problems == []
