"""A rollout over its time limit ends, makes no further call, and is a fault, not a 0; a killed gateway is replaced."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from agl_plugin.proxy.gate import GONE
from agl_plugin.run.between_steps import drain
from tests.loop.conftest import SLOW_S, Loop, collecting, rollouts

pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.long
def test_a_rollout_over_its_limit_makes_no_further_call(loop: Loop, tmp_path: Path) -> None:
    """A call takes SLOW_S, twice the limit: nothing follows it, also where a busy machine never came to begin it."""
    before, started = len(loop.server.requests), time.monotonic()
    with collecting(loop, tmp_path, rollout_timeout_s=SLOW_S / 2) as daemon:
        rows = rollouts(daemon, loop, ["慢慢说：甲药治什么？"], is_train=True)
        waited_s = time.monotonic() - started
        time.sleep(2 * SLOW_S)
    assert [row["unscored"] for row in rows] == ["timed_out"] * 2
    assert all(row["rollout_id"] not in daemon.outcome.scored for row in rows)
    assert len(loop.server.requests) - before <= 2  # the first call of each; without the limit, they go on to a second
    assert waited_s < 60


@pytest.mark.long
@pytest.mark.parametrize("proxy", ["gateway", "litellm"])
def test_the_step_is_over_when_the_proxy_waits_for_nothing_and_late_calls_are_refused(
    loop: Loop, tmp_path: Path, proxy: str
) -> None:
    """The runner has ended both rollouts, but the proxy still asks the model for them."""
    with collecting(loop, tmp_path, rollout_timeout_s=SLOW_S / 2, proxy=proxy) as daemon:
        rollouts(daemon, loop, ["慢慢说：甲药治什么？"], is_train=True)
        assert daemon.gate.in_flight > 0
        drain(daemon.gate, lambda: 0)
        n_asked, call = (
            len(loop.server.requests),
            {"model": "fake-model", "messages": [{"role": "user", "content": "?"}]},
        )
        url = f"{daemon.llm_proxy.as_resource().endpoint}/rollout/r/attempt/a/v1/chat/completions"
        late = httpx.post(url, json=call, trust_env=False, timeout=10.0)
        assert late.status_code == GONE and daemon.gate.refused == 1 and len(loop.server.requests) == n_asked
        daemon.gate.open()
        assert httpx.post(url, json=call, trust_env=False, timeout=10.0).status_code == 200
    deadline = time.monotonic() + 10  # the end of an answer is noted after the client has it
    while daemon.gate.in_flight and time.monotonic() < deadline:
        time.sleep(0.01)
    assert daemon.gate.in_flight == 0


@pytest.mark.long
def test_a_gateway_that_was_killed_is_there_again_in_the_next_step(loop: Loop, tmp_path: Path) -> None:
    with collecting(loop, tmp_path) as daemon:
        launcher: Any = daemon.llm_proxy.server_launcher
        first = rollouts(daemon, loop, ["甲药治什么？"], is_train=True)
        process = launcher._proc
        process.kill()
        process.join()
        assert not daemon.llm_proxy.is_running()
        again = rollouts(daemon, loop, ["甲药治什么？"], is_train=True)
        assert launcher._proc is not process and {row["unscored"] for row in first + again} == {""}
