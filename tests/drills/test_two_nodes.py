"""A run over a real Ray of two nodes, at two addresses of the loopback: what it says and does when one dies."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from foundation import run_folder
from foundation.environment import COMMON_ENV
from foundation.net import free_port
from foundation.rollout_keys import OTHER_LLM
from sql_agent.tiny_policy.build import ensure_tiny_policy
from tests.drills.conftest import END_S, START_S, taken, training, until

pytestmark = pytest.mark.slow
HEAD, OTHER = "127.0.0.2", "127.0.0.3"
TWO = ["--set", "trainer.n_nodes=2", "--set", "trainer.max_steps=3"]


@contextmanager
def node(log: Path, ip: str, *place: str) -> Iterator[psutil.Process]:
    """A node of Ray with a pretended GPU, until the end or its death."""
    command = [str(Path(sys.executable).parent / "ray"), "start", f"--node-ip-address={ip}", *place, "--block"]
    sizes = ["--num-cpus=4", "--num-gpus=1", f"--object-store-memory={200 * 2**20}", "--disable-usage-stats"]
    with log.open("ab") as out, subprocess.Popen([*command, *sizes], stdout=out, stderr=out) as process:
        started = psutil.Process(process.pid)
        try:
            yield started
        finally:
            end(started)


def end(started: psutil.Process) -> None:
    """kill -9 for a node and all that it runs."""
    if started.is_running():
        for process in [*started.children(recursive=True), started]:
            process.kill()


def n_alive(address: str) -> int:
    """Nodes that the cluster has."""
    look = [
        sys.executable,
        "-c",
        "import ray; ray.init(); print(sum(node['Alive'] for node in ray.nodes()))",
    ]
    done = subprocess.run(look, capture_output=True, text=True, env={**os.environ, "RAY_ADDRESS": address})
    return int(done.stdout.split()[-1]) if done.returncode == 0 else 0


def gateway_at(machine: str, store: Path) -> str:
    """The address of a machine's gateway, of which the runners know from the store."""
    with closing(sqlite3.connect(store)) as rows:
        (text,) = rows.execute("SELECT data FROM resources ORDER BY id DESC LIMIT 1").fetchone()
    return json.loads(text)["resources"][f"{OTHER_LLM}{machine}"]["endpoint"]


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster with a token of its own, which the tests' processes find in their environment."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)  # a short path, for its sockets
        monkeypatch.setenv("RAY_AUTH_TOKEN", os.urandom(16).hex())
        for name, value in {**COMMON_ENV, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1", "RAY_worker_niceness": "0"}.items():
            monkeypatch.setenv(name, value)
        address = f"{HEAD}:{free_port()}"
        with node(tmp_path / "head.log", HEAD, "--head", f"--port={address[10:]}", "--include-dashboard=false"):
            until(lambda: n_alive(address) == 1, timeout_s=END_S)
            monkeypatch.setenv("RAY_ADDRESS", address)
            yield address


def test_a_run_over_two_nodes_names_the_one_that_dies_and_goes_on_when_it_is_back(tmp_path: Path, head: str) -> None:
    ensure_tiny_policy(1)
    place, runs = f"--address={head}", tmp_path / "runs"
    with node(tmp_path / "other.log", OTHER, place) as other:
        until(lambda: n_alive(head) == 2, timeout_s=END_S)
        with training(runs, *TWO) as run:
            run.wait_for("checkpoint", 1)
            end(other)
            text = run.end()
            assert run.process.returncode == 1 and run.summary()["status"] == "failed", text
            assert f"Ray has lost {OTHER}. The step is lost; continue with --resume" in run.summary()["error"]
            first = run.folder
    parts = sorted(path.name for path in (first / run_folder.CHECKPOINTS).glob("global_step_1/actor/model_*"))
    assert parts == [f"model_world_size_2_rank_{rank}.pt" for rank in (0, 1)]
    with node(tmp_path / "back.log", OTHER, place):
        until(lambda: n_alive(head) == 2, timeout_s=END_S)
        with training(runs, *TWO, "--resume_checkpoint") as run:
            text = run.end()
            assert run.process.returncode == 0 and run.folder != first, text
            summary = run.summary()
    assert summary["status"] == "finished" and summary["last_step"] == 3
    assert summary["scored"] == summary["rollouts"] > 0


def test_each_node_has_a_gateway_and_a_run_goes_on_over_one_that_is_killed_in_mid_step(
    tmp_path: Path, head: str
) -> None:
    ensure_tiny_policy(1)
    sizes = ["--set", "trainer.n_nodes=2", "--set", "trainer.max_steps=2", "--set", "rollout.group_size=16"]
    with node(tmp_path / "other.log", OTHER, f"--address={head}") as other:
        until(lambda: n_alive(head) == 2, timeout_s=END_S)
        with training(tmp_path / "runs", *sizes, "--set", "rollout.gateways=per_node") as run:
            until(lambda: taken(tmp_path / "store.db") > 0 or run.process.poll() is not None, timeout_s=2 * START_S)
            (host,) = [p for p in other.children(recursive=True) if p.name().startswith("ray::GatewayHost")]
            (gateway,) = host.children()
            metrics = f"{gateway_at(OTHER, tmp_path / 'store.db')}/metrics"
            calls = httpx.get(metrics, trust_env=False, timeout=END_S).text
            gateway.kill()
            text = run.end()
            summary = run.summary()
    assert run.process.returncode == 0 and summary["status"] == "finished", text
    assert summary["rollouts"] == summary["scored"] == 64 and summary["last_step"] == 2
    assert "warning: step 1: the LLM proxy died 1 x and was started again" in text
    assert f'gateway_in_flight{{address="http://{OTHER}:' in calls


def test_too_few_machines_are_named_before_a_run_waits_for_them(tmp_path: Path, head: str) -> None:
    with training(tmp_path / "runs", *TWO) as run:
        run.end()
        error = run.summary()["error"]
    assert (
        run.process.returncode == 1 and f"trainer.n_nodes = 2, trainer.n_gpus = 1: Ray has 1 GPU(s) at {HEAD}" in error
    )
