"""evaluate.py against a real HTTP server: what it asks, what it writes, how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sql_agent.config import ROOT
from tests.fakes import Answer, chat_reply, error_reply, openai_server, tool_call_reply
from tests.sql_db import make_database

QUESTIONS = [
    {
        "id": f"q{i}",
        "question": f"第{i}问：甲药的适应症是什么？",
        "answer": "甲药的适应症：高血压。",
        "task_type": "drug_field",
    }
    for i in range(4)
]


def policy(request: dict[str, Any]) -> Answer:
    """Asks the database, then answers; right only when sampled; 第3问 breaks the server."""
    if "第3问" in json.dumps(request["messages"], ensure_ascii=False):
        return error_reply(500, "broken")
    if request["messages"][-1]["role"] == "user":
        return tool_call_reply(("query_database_by_sql", {"sql": "SELECT 1 FROM drugs_info"}))
    return chat_reply("甲药的适应症：高血压。" if request["temperature"] > 0 else "不知道。")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    database = make_database(tmp_path)
    lines = [json.dumps(question, ensure_ascii=False) for question in QUESTIONS]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return ["--split", str(tmp_path / "mine.jsonl"), "--set", f"database.path={database}"]


def evaluate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "sql_agent" / "evaluate.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_two_endpoints_are_compared_and_a_fault_is_counted(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "results"
    with openai_server(policy) as server:
        target = f"fake@{server.base_url}"
        done = evaluate("--before", target, "--after", target, "--samples", "2", "--out", str(out), *files)
    assert done.returncode == 1, done.stderr
    assert done.stdout.rstrip().splitlines()[-1] == f"evaluation: {out}"
    tree = json.loads((out / "results.json").read_text())
    sampled, greedy = (tree["models"]["after"][f"mine/{how}"] for how in ("sampled", "greedy"))
    assert sampled["trials"] == 8 and sampled["unscored"] == {"llm_fault": 2} and greedy["unscored"] == {"llm_fault": 1}
    assert sampled["measures"]["reward"]["mean"] > 1.0 > greedy["measures"]["reward"]["mean"]
    assert sampled["measures"]["executed SQL"] == {"mean": 1.0, "low": 1.0, "high": 1.0, "n": 3}
    assert tree["delta"]["mine/sampled"]["reward"]["mean"] == 0.0
    trials = [json.loads(line) for line in (out / "trials.jsonl").read_text().splitlines()]
    assert len(trials) == 2 * (8 + 4) and {t["decoding"] for t in trials} == {"sampled", "greedy"}
    assert "| mine | sampled | before |" in (out / "results.md").read_text()


def test_a_missing_file_is_wrong_input(tmp_path: Path) -> None:
    done = evaluate("--before", "m@http://127.0.0.1:9/v1", "--split", str(tmp_path / "none.jsonl"))
    assert done.returncode == 2 and "none.jsonl" in done.stderr
