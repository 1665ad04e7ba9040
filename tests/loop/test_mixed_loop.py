"""Two agents in one batch through the real loop: each has its prompt, its tools and its scorer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agl_plugin.update.rows import Limits
from tests.loop.conftest import collecting, rollouts, running

pytestmark = pytest.mark.filterwarnings("default")

TOOLS = """
def add(a: int, b: int) -> int:
    \"\"\"Add two numbers.\"\"\"
    return a + b
"""
PROMPT = "Add, then write #### and the sum."


@pytest.mark.long
def test_each_row_is_played_and_graded_by_its_agent(database: Path, tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS, encoding="utf-8")
    (tmp_path / "prompt.txt").write_text(PROMPT, encoding="utf-8")
    settings = {
        "agents.math.agent.tools": f'["{tmp_path / "tools.py"}"]',
        "agents.math.agent.system_prompt": str(tmp_path / "prompt.txt"),
        "agents.math.reward.default_scorer": "math",
        "reward.judge.kind": "reference",
    }
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    asked, columns = (
        ["甲药的适应症是什么？", "2 和 3 相加？"],
        {"agent": ["", "math"], "answer": ["高血压；心绞痛", "#### 5"]},
    )
    with running(tmp_path, database, *flags) as loop, collecting(loop, tmp_path) as daemon:
        lines = rollouts(daemon, loop, asked, is_train=True, **columns)
        batch, _ = daemon.batch(Limits(4096, 512))
        stats = dict(daemon.stats)
        rollouts(daemon, loop, asked, is_train=False, **columns)
        validated = daemon.validation()
        requests: list[dict[str, Any]] = [request.json for request in loop.server.requests]

    of = {agent: [line for line in lines if line["agent"] == agent] for agent in ("", "math")}
    assert [len(line["sql_calls"]) for line in of[""]] == [1, 1] and not any(line["tool_calls"] for line in of[""])
    assert [line["tool_calls"][0]["result"] for line in of["math"]] == ["5", "5"]
    assert {line["judge"] for line in of[""]} == {"judge"} and {line["judge"] for line in of["math"]} == {"math"}
    assert [line["reward"] for line in of["math"]] == [1.0, 1.0]
    assert [line["reward"] for line in of[""]] == [pytest.approx(1.1)] * 2
    seen = {
        (body["messages"][0]["content"] == PROMPT, *(tool["function"]["name"] for tool in body["tools"]))
        for body in requests
    }
    assert seen == {(True, "add"), (False, "query_database_by_sql")}
    assert len(batch) == 8  # 2 questions x 2 rollouts x 2 calls
    assert (stats["reward/math/mean"], stats["reward/math/rollouts"], stats["reward/default/scored"]) == (1.0, 2, 2)
    assert validated["val/reward/default/mean"] == pytest.approx(1.1) and validated["val/reward/math/mean"] == 1.0
