"""Groups that play on over a change of weights: their next calls wait, and a killed runner loses none of them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from agl_plugin.daemon import GrpoDaemon
from agl_plugin.proxy.spans import CALL_SPAN, WEIGHTS
from agl_plugin.run.between_steps import drain, hold
from agl_plugin.update.rows import Limits
from foundation import run_folder
from foundation.files import read_lines
from tests.loop.conftest import Loop, collecting, running
from tests.loop.test_killed_runner import kill_once_busy

pytestmark = pytest.mark.filterwarnings("default")


def step(daemon: GrpoDaemon, loop: Loop, questions: list[str]) -> list[str]:
    """Train one group, and change the weights; the questions that were trained."""
    daemon.step += 1
    daemon.gate.open(weights=daemon.step - 1)
    asked = [{"id": question, "question": question, "answer": "高血压；心绞痛"} for question in questions]
    address = loop.server.base_url.removeprefix("http://").removesuffix("/v1")
    daemon.collect(asked, [address], is_train=True, n_groups=1)
    hold(daemon.gate, daemon.llm_proxy.is_running, limit_s=30.0)
    assert drain(daemon.gate, lambda: 0, held=True) == 0
    daemon.batch(Limits(4096, 512))
    return (
        sorted({str(daemon.rollouts.questions[rollout]["id"]) for rollout, _ in daemon.batched.rows})
        if daemon.batched
        else []
    )


@pytest.mark.long
@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
def test_slow_rollouts_go_on_with_the_next_weights(database: Path, tmp_path: Path, killed: bool) -> None:
    fast, slow = "甲药治什么？", "慢慢说：甲药治什么？"
    with (
        running(tmp_path, database, "--set", "reward.judge.kind=reference") as loop,
        collecting(loop, tmp_path, async_groups=1, max_staleness=2) as daemon,
    ):
        killer = threading.Thread(target=kill_once_busy, args=(loop, []))
        if killed:
            killer.start()
        assert step(daemon, loop, [slow, fast]) == [fast]
        assert len(daemon.playing_on.groups) == 1 and daemon.playing_on.pending
        assert step(daemon, loop, []) == [slow] and not daemon.playing_on.questions
        if killed:
            killer.join()
        rows = {row["rollout_id"]: row for row in read_lines(tmp_path / run_folder.ROLLOUTS)}
        spans = [daemon._wait(daemon.store.query_spans(i, attempt_id="latest", name=CALL_SPAN)) for i in rows]
        stats = daemon.stats
    versions: Any = [[span.attributes[WEIGHTS] for span in sorted(of, key=lambda s: s.sequence_id)] for of in spans]
    told = dict(zip(rows, versions, strict=True))
    assert [(row["step"], row["unscored"], row["n_turns"]) for row in rows.values()] == [
        *[(1, "", 2)] * 2,
        *[(2, "", 2)] * 2,
    ]
    assert {tuple(told[i]) for i, row in rows.items() if row["step"] == 1} == {(0, 0)}
    late = [told[i] for i, row in rows.items() if row["step"] == 2]
    assert all(one == sorted(one) and one[-1] == 1 for one in late)
    assert stats["staleness_max"] == 1 - min(map(min, late)) and stats["too_old"] == 0
    if not killed:
        assert late == [[0, 1]] * 2  # answered before the change, and after it
