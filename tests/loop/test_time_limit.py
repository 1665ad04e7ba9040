"""A rollout over its time limit: its runner ends it, it makes no further call, and it is a fault, not a 0."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.loop.conftest import SLOW_S, Loop, collecting, rollouts

pytestmark = pytest.mark.filterwarnings("default")


def test_a_rollout_over_its_limit_makes_no_further_call(loop: Loop, tmp_path: Path) -> None:
    """A call takes SLOW_S, twice the limit: nothing follows it, also where a busy machine never came to begin it."""
    before, started = len(loop.server.requests), time.monotonic()
    with collecting(loop, tmp_path, rollout_timeout_s=SLOW_S / 2) as daemon:
        rows = rollouts(daemon, loop, ["慢慢说：甲药治什么？"], is_train=True)
        waited_s = time.monotonic() - started
        time.sleep(2 * SLOW_S)
    assert [row["unscored"] for row in rows] == ["timed_out"] * 2
    assert all(row["rollout_id"] not in daemon._scored() for row in rows)
    assert len(loop.server.requests) - before <= 2  # the first call of each; without the limit, they go on to a second
    assert waited_s < 60
