"""A runner that is killed in the middle of its rollouts: they run once more, and nothing counts twice."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.loop.conftest import Loop, collecting, rollouts, running

pytestmark = pytest.mark.filterwarnings("default")


def worker_of(loop: Loop) -> psutil.Process:
    """The process that plays rollouts: the child of the one that watches it."""
    watchers = psutil.Process(loop.runner.pid).children()
    (worker,) = [child for watcher in watchers for child in watcher.children()]
    return worker


def kill_once_busy(loop: Loop, killed: list[int]) -> None:
    """kill -9 the worker as soon as the model server has a request of it."""
    while not any("慢" in str(request.json.get("messages")) for request in loop.server.requests):
        time.sleep(0.02)
    worker = worker_of(loop)
    killed.append(worker.pid)
    worker.kill()


@pytest.mark.long
def test_the_rollouts_of_a_killed_runner_run_once_more(database: Path, tmp_path: Path) -> None:
    with (
        running(tmp_path, database, "--set", "reward.judge.kind=reference") as loop,
        collecting(loop, tmp_path) as daemon,
    ):
        killed: list[int] = []
        killer = threading.Thread(target=kill_once_busy, args=(loop, killed))
        killer.start()
        rows = rollouts(daemon, loop, ["慢慢说：甲药治什么？", "慢慢说：乙药治什么？"], is_train=True)
        killer.join()
        assert worker_of(loop).pid != killed[0]
    assert [row["unscored"] for row in rows] == [""] * 4
    assert Counter(row["rollout_id"] for row in rows).most_common(1)[0][1] == 1
    assert all(len(row["response_tokens"]) == row["n_turns"] == 2 for row in rows)
    seeds = [request.json["seed"] for request in loop.server.requests]
    assert len(seeds) > len(set(seeds)) == 4 * 2  # another attempt draws what the first one drew
    assert "it runs once more" in (tmp_path / "runner.log").read_text()
