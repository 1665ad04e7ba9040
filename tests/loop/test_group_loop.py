"""Rewards of whole groups on the real way: runners leave the answers, the daemon has each group ranked or compared."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.support.server import Answer, FakeServer, chat_reply, openai_server
from reward_client import Mode
from sql_agent.config import build_config
from sql_agent.scoring.build import build_context
from sql_agent.scoring.groups import GroupGrader
from tests.loop.conftest import Loop, collecting, rollouts, running

pytestmark = pytest.mark.filterwarnings("default")


def judge(request: dict[str, Any]) -> Answer:
    """The longer answer is the better one; a single answer gets 0.9."""
    answers = re.findall(r"<<<BEGIN ANSWER_\d+ \w+>>>\n(.*?)\n<<<END", request["messages"][1]["content"], re.DOTALL)
    asked = request["response_format"]["json_schema"]["name"]
    if asked == "verdict":
        names = ("accuracy", "completeness", "clarity", "professionalism")
        return chat_reply(json.dumps({**dict.fromkeys(names, 0.9), "reason": "alone"}))
    order = sorted(range(1, len(answers) + 1), key=lambda n: -len(answers[n - 1]))
    said = {"better": order[0]} if asked == "comparison" else {"ranking": [[n] for n in order]}
    return chat_reply(json.dumps({**said, "reason": "because"}))


def test_a_group_is_judged_as_a_whole_and_validation_is_graded_alone(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with openai_server(judge) as server:
        teacher = {"TEACHER_BASE_URL": server.base_url, "TEACHER_API_KEY": "k", "TEACHER_MODEL": "judge"}
        for name, value in teacher.items():
            monkeypatch.setenv(name, value)
        # The runner only sees that answers await their group, so one serves both modes.
        settings = ("--set", "reward.judge.mode=pairwise", "--set", f"reward.judge.folder={tmp_path / 'runner'}")
        with running(tmp_path, database, *settings, **teacher) as loop:
            check_mode(loop, server, tmp_path, mode="groupwise", n_calls=1, how="ranked")
            check_mode(loop, server, tmp_path, mode="pairwise", n_calls=2, how="won")


def check_mode(loop: Loop, server: FakeServer, folder: Path, *, mode: Mode, n_calls: int, how: str) -> None:
    """`n_calls`: what two different answers to one question cost; two equal ones are graded alone by one call."""
    run_dir = folder / mode
    run_dir.mkdir()
    config = build_config({"reward": {"judge": {"mode": mode, "folder": str(run_dir / "judge")}}})
    llm = build_context(config.reward, run="r").llm
    assert llm
    before = len(server.requests)
    with collecting(loop, run_dir, grade_group=GroupGrader(llm, mode)) as daemon:
        lines = rollouts(daemon, loop, ["交替：甲药的适应症是什么？", "甲药的适应症是什么？"], is_train=True)
        batch, _ = daemon.get_train_data_batch(4096, 512, torch.device("cpu"), 1)
        assert len(server.requests) - before == n_calls + 1
        (validated,) = rollouts(daemon, loop, ["甲药的适应症是什么？"], is_train=False)

    compared = [line for line in lines if "交替" in line["question"]]
    alike = [line for line in lines if "交替" not in line["question"]]
    assert sorted(line["reward"] for line in compared) == pytest.approx([0.1, 1.1])
    assert all(line["reward_parts"]["sql"] == 0.1 and how in line["reason"] for line in compared)
    assert [line["reward"] for line in alike] == pytest.approx([1.0, 1.0]) and alike[0]["reason"] == "alone"
    assert sum(line["judge_usage"].get("calls", 0) for line in lines) == n_calls + 1
    by_rollout = {line["rollout_id"]: line["reward"] for line in lines}
    expected = [by_rollout[i] for i in batch.non_tensor_batch["rollout_id_list"]]
    assert batch.batch["token_level_scores"].sum(-1).tolist() == pytest.approx(expected, abs=1e-4)
    assert validated["reward_parts"]["answer"] == pytest.approx(0.9)
