"""Eight agents in one step, one whose tool or episode misbehaves by turns: the seven keep all, and the one is named.

Through store, gateway and runner with a scripted policy; with the tiny policy and real updates in one process, and on
vLLM.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agl_plugin.update.rows import Limits
from foundation.errors import RunError
from foundation.rollout_keys import told_tools
from sql_agent.config import ROOT, build_config, data_path, load_recipe
from sql_agent.data.dataset import load_questions
from sql_agent.training.health_rules import behaviour
from sql_agent.training.verl_config import flatten
from tests.loop.conftest import collecting, rollouts, running

pytestmark = pytest.mark.filterwarnings("default")
AGENTS = [f"agent_{n}" for n in range(8)]
GUILTY = AGENTS[5]
SCRIPTS = {"local": "train_local.py", "vllm": "train_sql_agent.py"}
# Turn -> the reason of the fault; None for what is told to the model.
TURNS = {
    "exits": "exit",
    "kills": "signal",
    "hangs": None,
    "blocks": None,
    "floods": "output",
    "interrupts": "exit",
    "leaves": "exit",
    "leaks": "memory",
}
MISBEHAVE = """
import os, signal, sys, time


def _misbehave(turn: str) -> None:
    if turn == "exits":
        sys.exit("no index")
    if turn == "kills":
        os.kill(os.getpid(), signal.SIGKILL)
    if turn in ("hangs", "blocks"):
        time.sleep(600)
    if turn == "interrupts":
        raise KeyboardInterrupt
    if turn == "leaves":
        os._exit(4)
    kept = []
    while turn == "leaks":
        kept.append(bytearray(1 << 24))
    while turn == "floods":
        print("x" * 1000)
"""


def tools_of(folder: Path, name: str, *, signature: str, body: str) -> Path:
    file = folder / f"{name}.py"
    file.write_text(f'{MISBEHAVE}\n\n{signature}\n    """A tool."""\n{body}', encoding="utf-8")
    return file


def in_the_loop(tmp_path: Path, turn: Path) -> list[str]:
    """Flags of eight agents with a tool each; the guilty one's does what `turn` says."""
    hostile = f"    _misbehave(open({str(turn)!r}).read())\n    return a + b\n"
    settings: dict[str, Any] = {}
    for name in AGENTS:
        body = hostile if name == GUILTY else "    return a + b\n"
        file = tools_of(tmp_path, name, signature=f"async def add_{name}(a: int, b: int) -> int:", body=body)
        settings |= {f"agents.{name}.agent.tools": f'["{file}"]', f"agents.{name}.agent.system_prompt": "tools"}
        settings |= {f"agents.{name}.reward.default_scorer": "math", f"agents.{name}.agent.tool_timeout_s": "20"}
        settings |= {f"agents.{name}.agent.tool_memory_mib": "128"}
    settings[f"agents.{GUILTY}.agent.tool_timeout_s"] = "2"
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


COLUMNS = {"agent": AGENTS, "answer": ["#### 5"] * 8}


@pytest.mark.long
def test_seven_agents_keep_all_beside_one_that_misbehaves_in_the_loop(database: Path, tmp_path: Path) -> None:
    turn = tmp_path / "turn"
    flags = in_the_loop(tmp_path, turn)
    with running(tmp_path, database, *flags) as loop, collecting(loop, tmp_path) as daemon:
        for name, reason in TURNS.items():
            turn.write_text(name, encoding="utf-8")
            lines = rollouts(daemon, loop, ["2 和 3 相加？"] * 8, is_train=True, **COLUMNS)
            daemon.batch(Limits(4096, 512))
            others = [line for line in lines if line["agent"] != GUILTY]
            guilty = [line for line in lines if line["agent"] == GUILTY]
            assert [line["reward"] for line in others] == [1.0] * 14, (name, others)
            assert len(guilty) == 2
            if reason is None:
                assert {line["tool_calls"][0]["outcome"] for line in guilty} == {"timeout"}, name
                assert not any(line["unscored"] for line in guilty)
                continue
            assert {line["unscored"] for line in guilty} == {"tool_fault"}, (name, guilty)
            assert [line["fault"] for line in guilty] == [{"tool": f"add_{GUILTY}", "reason": reason}] * 2, guilty
            assert all(line["reason"].startswith(f"add_{GUILTY}: ") for line in guilty)
            assert told_tools(lines) == f"add_{GUILTY} ({reason}) 2 x"
            assert behaviour(lines)[f"tools/add_{GUILTY}/faults/{reason}"] == 2
        turn.write_text("exits", encoding="utf-8")
        one = {"agent": [GUILTY], "answer": ["#### 5"]}
        rollouts(daemon, loop, ["2 和 3 相加？"], is_train=True, **one)
        with pytest.raises(RunError, match=rf"2 x tool_fault: tools broke: add_{GUILTY} \(exit\) 2 x"):
            daemon.batch(Limits(4096, 512))


@pytest.mark.long
def test_seven_agents_keep_all_beside_one_whose_episode_misbehaves(database: Path, tmp_path: Path) -> None:
    turn = tmp_path / "turn"
    body = f"    _misbehave(open({str(turn)!r}).read())\n    return '5'\n"
    flags = in_the_loop(tmp_path, turn)
    file = tools_of(tmp_path, "own", signature="async def play(question, endpoint, tools):", body=body)
    limits = {"tools": "[]", "episode": f"{file}:play", "episode_timeout_s": "3"}
    flags += [word for key, value in limits.items() for word in ("--set", f"agents.{GUILTY}.agent.{key}={value}")]
    with running(tmp_path, database, *flags) as loop, collecting(loop, tmp_path) as daemon:
        for name in TURNS:
            turn.write_text(name, encoding="utf-8")
            lines = rollouts(daemon, loop, ["2 和 3 相加？"] * 8, is_train=True, **COLUMNS)
            daemon.batch(Limits(4096, 512))
            others = [line["reward"] for line in lines if line["agent"] != GUILTY]
            guilty = [line for line in lines if line["agent"] == GUILTY]
            assert others == [1.0] * 14, (name, lines)
            assert [line["unscored"] for line in guilty] == ["episode_fault"] * 2, (name, guilty)
            begins = "the episode took more than" if TURNS[name] is None else "agent.episode "
            assert all(line["reason"].startswith(begins) for line in guilty), (name, guilty)


def one_step(tmp_path: Path) -> dict[str, Any]:
    """Changes to smoke_cpu. The tiny policy knows one tool, so all have a tool of its name."""
    recipe = load_recipe("smoke_cpu")
    questions = load_questions(data_path(build_config(recipe).data.training[0].file))[:8]
    rows = [
        one.model_dump() | {"agent": name, "scorer": "", "id": name}
        for one, name in zip(questions, AGENTS, strict=True)
    ]
    train = tmp_path / "train.jsonl"
    train.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    answers = '    return {"status": "success", "records": [{"precautions": "x"}], "count": 1}\n'
    counter = tmp_path / "counter"
    counter.touch()
    hostile = (
        f"    with open({str(counter)!r}, 'ab') as turns:\n        turns.write(b'x')\n        n = turns.tell()\n"
        f"    _misbehave({list(TURNS)!r}[(n - 1) % {len(TURNS)}])\n{answers}"
    )
    agents: dict[str, Any] = {}
    for name in AGENTS:
        body = hostile if name == GUILTY else answers
        file = tools_of(tmp_path, name, signature="def query_database_by_sql(sql: str) -> dict:", body=body)
        agent = {"tools": [str(file)], "tool_timeout_s": 2.0 if name == GUILTY else 60.0, "tool_memory_mib": 128}
        agents[name] = {"agent": {**agent, "system_prompt": "system_short", "max_turns": 2}}
    return {
        "agents": agents,
        "data": {"train_file": str(train), "val_max_rows": 2},
        "rollout": {"group_size": 8, "max_response_tokens": 60, "rollout_timeout_s": 600.0},
        "optim": {"questions_per_step": 8, "mini_batch_questions": 8, "micro_batch_rows": 8},
        "trainer": {"max_steps": 1, "validate_first": False, "validate_every": -1, "runs_dir": str(tmp_path)},
        "reward": {"judge": {"kind": "reference"}},
        "agent": {"system_prompt": "system_short"},
    }


@pytest.mark.long
@pytest.mark.parametrize("back_end", list(SCRIPTS))
def test_seven_agents_keep_all_beside_one_that_misbehaves(tmp_path: Path, back_end: str) -> None:
    sets = [word for k, v in flatten(one_step(tmp_path)).items() for word in ("--set", f"{k}={json.dumps(v)}")]
    command = [sys.executable, f"sql_agent/{SCRIPTS[back_end]}", "--recipe", "smoke_cpu", *sets]
    status = subprocess.run(command, cwd=ROOT, timeout=540).returncode
    (run_dir,) = tmp_path.glob("*smoke_cpu*")
    lines = [json.loads(line) for line in (run_dir / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()]
    others = [line for line in lines if line["agent"] != GUILTY]
    assert status == 0 and len(others) == 56 and all(line["reward"] is not None for line in others)
    faults = [line["fault"] for line in lines if line["agent"] == GUILTY and line["unscored"]]
    assert {one["tool"] for one in faults} == {"query_database_by_sql"}
    assert {one["reason"] for one in faults} == {reason for reason in TURNS.values() if reason}
    summary = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    assert summary["scored"] >= 56 and "query_database_by_sql (exit)" in summary["broken_tools"]
    (metrics, *_) = (json.loads(line) for line in (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    assert metrics["tools/query_database_by_sql/faults/signal"] >= 1
