"""Groupwise rewards on the real way: runners leave the answers, the daemon ranks each group with one call."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from sql_agent.config import build_config
from sql_agent.group_grading import GroupGrader
from sql_agent.scorers import build_context
from tests.fakes import Answer, chat_reply, openai_server
from tests.loop.conftest import collecting, rollouts, running

pytestmark = pytest.mark.filterwarnings("default")


def judge(request: dict[str, Any]) -> Answer:
    """The longer answer is the better one; a single answer gets 0.9."""
    answers = re.findall(r"<<<BEGIN ANSWER_\d+ \w+>>>\n(.*?)\n<<<END", request["messages"][1]["content"], re.DOTALL)
    if not answers:
        names = ("accuracy", "completeness", "clarity", "professionalism")
        return chat_reply(json.dumps({**dict.fromkeys(names, 0.9), "reason": "alone"}))
    order = sorted(range(1, len(answers) + 1), key=lambda n: -len(answers[n - 1]))
    return chat_reply(json.dumps({"ranking": [[n] for n in order], "reason": "ranked"}))


def test_a_group_is_ranked_by_one_call_and_validation_is_graded_alone(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with openai_server(judge) as server:
        teacher = {"TEACHER_BASE_URL": server.base_url, "TEACHER_API_KEY": "k", "TEACHER_MODEL": "judge"}
        for name, value in teacher.items():
            monkeypatch.setenv(name, value)
        folder = str(tmp_path / "judge")
        config = build_config({"reward": {"judge": {"mode": "groupwise", "folder": folder}}})
        llm = build_context(config.reward, run="r").llm
        assert llm
        settings = ("--set", "reward.judge.mode=groupwise", "--set", f"reward.judge.folder={folder}")
        with (
            running(tmp_path, database, *settings, **teacher) as loop,
            collecting(loop, tmp_path, grade_group=GroupGrader(llm, "groupwise")) as daemon,
        ):
            lines = rollouts(daemon, loop, ["交替：甲药的适应症是什么？", "甲药的适应症是什么？"], is_train=True)
            batch, _ = daemon.get_train_data_batch(4096, 512, torch.device("cpu"), 1)
            n_calls = len(server.requests)
            (validated,) = rollouts(daemon, loop, ["甲药的适应症是什么？"], is_train=False)

    ranked = [line for line in lines if "交替" in line["question"]]
    alike = [line for line in lines if "交替" not in line["question"]]
    assert sorted(line["reward"] for line in ranked) == pytest.approx([0.1, 1.1])
    assert all(line["reward_parts"]["sql"] == 0.1 and "ranked" in line["reason"] for line in ranked)
    assert [line["reward"] for line in alike] == pytest.approx([1.0, 1.0]) and alike[0]["reason"] == "alone"
    assert n_calls == 2 and sum(line["judge_usage"].get("calls", 0) for line in lines) == 2
    by_rollout = {line["rollout_id"]: line["reward"] for line in lines}
    expected = [by_rollout[i] for i in batch.non_tensor_batch["rollout_id_list"]]
    assert batch.batch["token_level_scores"].sum(-1).tolist() == pytest.approx(expected, abs=1e-4)
    assert validated["reward_parts"]["answer"] == pytest.approx(0.9) and validated["judge_usage"]["cache_hits"] == 1
