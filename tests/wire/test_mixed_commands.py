"""evaluate.py and sqlagent_test.py with several agents: who plays a question, and what is told of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sql_agent.testing.server import Answer, chat_reply, openai_server, tool_call_reply
from tests.sql_db import make_database
from tests.typed import app_of

pytestmark = pytest.mark.usefixtures("no_endpoints")

PROMPT = "Write #### and the number."
SQL = "SELECT price FROM drugs_info WHERE id = 1"


def model(request: dict[str, Any]) -> Answer:
    """Right as the agent `math`; as the other one it only asks the database."""
    if request["messages"][0]["content"] == PROMPT:
        return chat_reply("#### 5")
    asked = any(message["role"] == "tool" for message in request["messages"])
    return chat_reply("不知道。") if asked else tool_call_reply(("query_database_by_sql", {"sql": SQL}))


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    (tmp_path / "prompt.txt").write_text(PROMPT, encoding="utf-8")
    math = {
        "agent": {"tools": [], "system_prompt": str(tmp_path / "prompt.txt")},
        "reward": {"default_scorer": "math"},
    }
    return ["--set", f"agents.math={json.dumps(math)}", "--set", f"database.path={make_database(tmp_path)}"]


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.mark.long
def test_an_evaluation_has_the_reward_of_each_agent(tmp_path: Path, flags: list[str]) -> None:
    sums = [{"id": str(n), "question": f"{n} + {5 - n}?", "answer": "#### 5"} for n in range(3)]
    both = write(
        tmp_path / "both.jsonl", {"id": "q", "question": "价格？", "answer": "7元"}, {**sums[0], "agent": "math"}
    )
    math, out = write(tmp_path / "math.jsonl", *sums), tmp_path / "out"
    with openai_server(model) as server:
        plan = ["--before", f"m@{server.base_url}", "--samples", "2", "--split", both, "--split", f"math={math}"]
        done = CliRunner().invoke(app_of("evaluate"), [*plan, *flags, "--out", str(out)], catch_exceptions=False)
        resumed = CliRunner().invoke(app_of("evaluate"), ["--resume", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert found["questions"] == {"both": 2, "math-math": 3}
    figures = found["models"]["model"]
    by_agent = {name: one["measures"]["reward"] for name, one in figures["both/sampled"]["by_agent"].items()}
    assert by_agent["math"] == {"mean": 1.0, "low": 1.0, "high": 1.0, "n": 1} and by_agent["default"]["mean"] == 0.1
    assert figures["math-math/greedy"]["by_agent"]["math"]["questions"] == 3
    assert "### By agent" in (out / "results.md").read_text(encoding="utf-8")
    assert "15 of 15 trials are there already" in resumed.output


def test_an_agent_that_there_is_not_is_an_error(tmp_path: Path, flags: list[str]) -> None:
    file = write(tmp_path / "a.jsonl", {"id": "1", "question": "?", "answer": "5", "agent": "maths"})
    with openai_server(model) as server:
        plan = ["--before", f"m@{server.base_url}", "--split", file, "--out", str(tmp_path / "out")]
        done = CliRunner().invoke(app_of("evaluate"), [*plan, *flags])
        assert not server.requests
    assert done.exit_code == 2 and "row 1 (1): agent 'maths': no such agent. There are: math" in done.output


def test_a_question_is_tried_as_an_agent(tmp_path: Path, flags: list[str]) -> None:
    with openai_server(model) as server:
        ask = ["--base-url", server.base_url, "--model", "m", "--question", "2 + 3?", "--json", *flags]
        as_math, as_default = (
            json.loads(CliRunner().invoke(app_of("ask"), [*ask, *agent], catch_exceptions=False).stdout)
            for agent in (["--agent", "math"], [])
        )
        wrong = CliRunner().invoke(app_of("ask"), [*ask, "--agent", "mth"])
    assert (as_math["agent"], as_math["answer"], as_math["sql_calls"]) == ("math", "#### 5", [])
    assert as_default["agent"] == "" and len(as_default["sql_calls"]) == 1
    assert wrong.exit_code == 2 and "agent 'mth': no such agent" in wrong.output
