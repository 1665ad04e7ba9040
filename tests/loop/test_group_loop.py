"""Rewards of whole groups on the real way: runners leave the answers, the daemon has each group ranked or compared."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agl_plugin.update.rows import Limits
from reward_client import Mode
from sql_agent.config import build_config
from sql_agent.scoring.build import build_context
from sql_agent.scoring.groups import GroupGrader
from sql_agent.testing.server import Answer, FakeServer, chat_reply, openai_server
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


@pytest.mark.long
def test_a_group_is_judged_as_a_whole_and_validation_is_graded_alone(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with openai_server(judge) as server:
        teacher: dict[str, Any] = {
            "TEACHER_BASE_URL": server.base_url,
            "TEACHER_API_KEY": "k",
            "TEACHER_MODEL": "judge",
        }
        for name, value in teacher.items():
            monkeypatch.setenv(name, value)
        # The runner only sees that answers await their group, so one serves both modes.
        settings = ("--set", "reward.judge.mode=pairwise", "--set", f"reward.judge.folder={tmp_path / 'runner'}")
        settings += ("--set", f"reward.terms={json.dumps(terms(tmp_path))}")
        with running(tmp_path, database, *settings, **teacher) as loop:
            check_mode(loop, server, tmp_path, mode="groupwise", n_calls=1, how="ranked")
            check_mode(loop, server, tmp_path, mode="pairwise", n_calls=2, how="won")


def terms(folder: Path) -> list[dict[str, Any]]:
    """The judge, what it costs to be long, and a function that gives no number where the question says 坏."""
    (folder / "mine.py").write_text(
        "async def of_facts(completions, prompts, **columns):\n"
        "    return [float('nan') if '坏' in prompts[0] else 0.5]\n",
        encoding="utf-8",
    )
    return [
        {"scorer": "judge", "weight": 0.5},
        {"scorer": "length_penalty", "weight": 0.2, "target": 5},
        {"scorer": f"{folder}/mine.py:of_facts", "weight": 0.5, "name": "facts"},
    ]


def check_mode(loop: Loop, server: FakeServer, folder: Path, *, mode: Mode, n_calls: int, how: str) -> None:
    """`n_calls`: what two different answers to one question cost; two equal ones are graded alone by one call."""
    run_dir = folder / mode
    run_dir.mkdir()
    config = build_config({"reward": {"judge": {"mode": mode, "folder": str(run_dir / "judge")}}})
    llm = build_context(config.reward, run="r").llm
    assert llm
    before = len(server.requests)
    with collecting(loop, run_dir, grade_group=GroupGrader(llm, mode)) as daemon:
        questions = ["交替：甲药的适应症是什么？", "甲药的适应症是什么？", "坏：甲药的适应症是什么？"]
        *lines, lost, lost_too = sorted(
            rollouts(daemon, loop, questions, is_train=True), key=lambda line: line["unscored"]
        )
        batch, _ = daemon.batch(Limits(4096, 512))
        assert len(server.requests) - before == n_calls + 1
        (validated,) = rollouts(daemon, loop, ["甲药的适应症是什么？"], is_train=False)
        spans = daemon._wait(daemon.store.query_spans(validated["rollout_id"], attempt_id="latest"), timeout_s=30)

    compared = [line for line in lines if "交替" in line["question"]]
    alike = [line for line in lines if "交替" not in line["question"]]
    # bonus + function + judge, and for the longer answer 2 characters above 5: 0.2 x 2/5
    assert sorted(line["reward"] for line in compared) == pytest.approx([0.1 + 0.25, 0.1 + 0.25 + 0.5 - 0.08])
    assert all(line["reward_parts"]["sql"] == 0.1 and how in line["reason"] for line in compared)
    assert [line["reward"] for line in alike] == pytest.approx([0.72, 0.72]) and alike[0]["reason"] == "alone"
    assert {line["unscored"] for line in (lost, lost_too)} == {"bad_score"} and lost["reward"] is None
    assert daemon.stats["unscored/bad_score"] == 2 and daemon.stats["scored"] == 4
    means = {name: daemon.stats[f"reward_parts/{name}"] for name in ("sql", "judge", "facts", "length_penalty")}
    assert means == pytest.approx({"sql": 0.1, "judge": (0.5 + 0.9) / 4, "facts": 0.25, "length_penalty": -0.06})
    assert sum(line["judge_usage"].get("calls", 0) for line in lines) == n_calls + 1
    by_rollout = {line["rollout_id"]: line["reward"] for line in lines}
    expected = [by_rollout[i] for i in batch.non_tensor_batch["rollout_id_list"]]
    assert batch.batch["token_level_scores"].sum(-1).tolist() == pytest.approx(expected, abs=1e-4)
    assert validated["reward_parts"] == pytest.approx(
        {"sql": 0.1, "judge": 0.45, "facts": 0.25, "length_penalty": -0.08}
    )
    assert validated["judge"].startswith("judge + length_penalty + ")
    told = {str(value) for span in spans for key, value in span.attributes.items() if key.endswith(".name")}
    assert told >= {"total", *validated["reward_parts"]}
