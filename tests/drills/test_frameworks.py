"""Agents and environments of other frameworks, each in an environment of its own, play and train a step."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from foundation.files import read_lines
from foundation.net import free_port
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import ROOT, build_config
from sql_agent.records import Question
from sql_agent.testing.server import Answer, Reply, chat_reply, openai_server, tool_call_reply
from tests.loop.conftest import wait_until_up

pytestmark = pytest.mark.slow
UV = ROOT / ".tools" / "bin" / "uv"
AGENTS = ROOT / "docs" / "agents"
PACKAGES = {
    "autogen": ("autogen-agentchat==0.7.5", "autogen-ext[openai]==0.7.5"),
    "crewai": ("crewai==1.15.30",),
    "openenv": ("openenv-core==0.3.0",),
    "verifiers": ("verifiers==0.4.0",),
}
ENV_MAP = {"QUESTION": "input.question", "ANSWER": "input.answer"}
ECHO = '''
import sys
import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

class Say(Action):
    message: str

class Heard(Observation):
    text: str = ""

class Twice(Environment):
    """Whoever says the same twice is right."""
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.said = []
        return Heard(text="say", done=False, reward=0.0)

    def step(self, action, **kwargs):
        self.said.append(action.message)
        return Heard(text=action.message, done=len(self.said) == 2, reward=float(self.said[0] == self.said[-1]))

    @property
    def state(self):
        return State()

app = create_fastapi_app(Twice, Say, Heard, max_concurrent_envs=64)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="critical")
'''


@pytest.fixture(scope="module", params=PACKAGES)
def framework(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A framework and the Python that has it."""
    folder = tmp_path_factory.mktemp(request.param) / "env"
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([UV, "pip", "install", "-q", "--python", python, *PACKAGES[request.param]], check=True)
    return request.param, python


@contextmanager
def _settings(name: str, python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    program = AGENTS / f"with_{name}.py"
    common: dict[str, Any] = {"tools": [], "system_prompt": "tools", "episode_timeout_s": 600.0}
    if name in ("autogen", "crewai"):
        yield {**common, "command": f"{python} {program}"}
        return
    agent = {"openenv": "OpenEnvAgent", "verifiers": "VerifiersAgent"}[name]
    settings = {**common, "agl_class": f"{program}:{agent}", "agl_python": str(python), "env_map": ENV_MAP}
    if name == "verifiers":
        yield settings
        return
    (tmp_path / "echo.py").write_text(ECHO, encoding="utf-8")
    port = free_port()
    monkeypatch.setenv("OPENENV_URL", f"http://127.0.0.1:{port}")
    server = subprocess.Popen([python, tmp_path / "echo.py", str(port)])
    try:
        wait_until_up(f"http://127.0.0.1:{port}/health", server)
        yield {**settings, "command_env": ["OPENENV_URL"]}
    finally:
        server.kill()
        server.wait()


def test_it_plays_and_trains_a_step(
    framework: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, python = framework
    with _settings(name, python, tmp_path, monkeypatch) as agent:
        played = _played(agent)
        assert played.final_answer == "There are 5." and played.n_turns == (1 if name == "verifiers" else 2)
        assert played.environment_reward == (1.0 if "agl_class" in agent else None)
        _trains(agent, tmp_path)


def _played(agent: dict[str, Any]) -> Any:
    """An episode against a server that calls the tool where there is one, and then answers."""

    def answer(request: dict[str, Any]) -> Answer:
        if request.get("tools") and request["messages"][-1]["role"] != "tool":
            return tool_call_reply(("query_database_by_sql", {"sql": "SELECT COUNT(*) FROM disease"}))
        if request.get("stream"):
            return _streamed("There are 5.")
        return chat_reply("There are 5.")

    with openai_server(answer) as server, EpisodeRunner(build_config({"agent": agent})) as runner:
        runner.check()
        endpoint = LLMEndpoint(server.base_url, "fake-model", api_key="key")
        return asyncio.run(runner.run(Question(id="q", question="2 + 3?", answer="5"), endpoint))


def _streamed(text: str) -> Reply:
    """A stream as vLLM sends it: why it ended, and all of the tokens' counts."""
    about = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "fake-model"}
    told = [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}]
    end = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    lines = [{**about, "choices": told}, {**about, "choices": end}, {**about, "choices": [], "usage": usage}]
    body = "".join(f"data: {json.dumps(line)}\n\n" for line in lines) + "data: [DONE]\n\n"
    return Reply(body=body, content_type="text/event-stream")


def _trains(agent: dict[str, Any], tmp_path: Path) -> None:
    """A step of the tiny policy in one process: every rollout is scored, and its calls are trained."""
    keys = {**{f"agent.{key}": value for key, value in agent.items()}, "trainer.runs_dir": str(tmp_path / "runs")}
    flags = [word for key, value in keys.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    command = [sys.executable, "-m", "sql_agent", "train", "--backend", "local", "--ci-fast", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (summary,) = (json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/summary.json"))
    assert summary["status"] == "finished" and summary["scored"] > 0 and not summary["unscored"], summary
    (rollouts,) = (read_lines(path) for path in (tmp_path / "runs").glob("*/rollouts.jsonl"))
    assert all(row["reward"] is not None and row["response_tokens"] for row in rollouts)
