"""A store that is killed in the middle of rollouts and started again, behind a token: nothing is lost or doubled."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from foundation.files import read_lines
from foundation.store_token import VARIABLE
from tests.loop.conftest import STORE_PATIENCE_S, Loop, collecting, rollouts, running

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.slow]
TOKEN = "a-secret-of-this-test"


def restart_once_busy(loop: Loop) -> None:
    while not any("慢" in str(request.json.get("messages")) for request in loop.server.requests):
        time.sleep(0.02)
    loop.restart_store()


def test_rollouts_go_on_over_a_killed_store_behind_a_token(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    monkeypatch.setattr("agl_plugin.proxy.span_writer.GIVE_UP_S", STORE_PATIENCE_S)
    settings = ["--set", "reward.judge.kind=reference", "--set", f"store.patience_s={STORE_PATIENCE_S}"]
    with (
        running(tmp_path, database, *settings, lasting=True, **{VARIABLE: TOKEN}) as loop,
        collecting(loop, tmp_path) as daemon,
    ):
        killer = threading.Thread(target=restart_once_busy, args=(loop,))
        killer.start()
        rows = rollouts(daemon, loop, ["慢慢说：甲药治什么？", "慢慢说：乙药治什么？"], is_train=True)
        killer.join()
        for url in (f"{loop.store_address}/v1/agl/rollouts", f"{daemon.llm_proxy.as_resource().endpoint}/v1/models"):
            assert httpx.get(url, trust_env=False).status_code == 401
    assert [row["unscored"] for row in rows] == [""] * 4
    assert Counter(row["rollout_id"] for row in rows).most_common(1)[0][1] == 1
    assert all(len(row["response_tokens"]) == row["n_turns"] == 2 for row in rows)
    assert read_lines(tmp_path / "rollouts.jsonl") == rows
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(kept) > 3 and not [path for path in kept if TOKEN.encode() in path.read_bytes()]
