"""agent.agl_class: agents written for agent-lightning 1.0, against a real local server."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foundation.errors import UserError
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.agent.grading import scoring_of
from sql_agent.config import build_config
from sql_agent.errors import EpisodeFault, Fault, LLMFault
from sql_agent.records import Episode, Question
from sql_agent.scoring.reward import score
from sql_agent.testing.server import FakeServer, chat_reply, error_reply, openai_server

QUESTION = Question(id="q1", question="2 + 3?", answer="5", meta={"level": {"name": "easy"}})
ENV_MAP = {
    "QUESTION": "input.question",
    "ANSWER": "input.answer",
    "LEVEL": "input.level.name",
    "ROW": "input",
    "A": "b",
}
AGENT = """
    import os
    import httpx
    import openai

    class Agent:
        async def run(self):
            client = openai.AsyncOpenAI(
                base_url=os.environ["AGL_OPENAI_BASE_URL"], api_key=os.environ["AGL_KEY"], max_retries=0
            )
            said = [{"role": "user", "content": os.environ["QUESTION"] + os.environ["LEVEL"] + os.environ["A"]}]
            reply = await client.chat.completions.create(model="auto", messages=said, temperature=1.9, max_tokens=64)
            text = reply.choices[0].message.content
            for value in VALUES:
                self.post("reward", {"value": value(text)})
            self.post("note", {"any": ["thing"]})

        def post(self, kind, data):
            key = {"Authorization": "Bearer " + os.environ["AGL_KEY"]}
            body = {"event_type": kind, "data": data}
            posted = httpx.post(os.environ["AGL_EVENT_URL"], json=body, headers=key)
            event = posted.raise_for_status().json()
            assert event["event_type"] == kind and event["data"] == data and event["attempt_id"] == "0"

    class Plain(Agent):
        def run(self):
            import asyncio
            asyncio.run(super().run())
            assert "TEACHER_API_KEY" not in os.environ

    VALUES = [lambda text: 0.25, lambda text: float(text == os.environ["ANSWER"])]
"""
Play = Callable[..., tuple[Episode, FakeServer]]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(reply: Any = None, text: str = AGENT, **agent: Any) -> tuple[Episode, FakeServer]:
        file = tmp_path / "own.py"
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        settings = {"agl_class": f"{file}:Agent", "env_map": ENV_MAP, "tools": [], "llm_timeout_s": 5.0, **agent}
        settings["agl_class"] = settings["agl_class"].format(file=file)
        server_of = openai_server(lambda _: reply or chat_reply("5"))
        with server_of as server, EpisodeRunner(build_config({"agent": settings})) as runner:
            runner.check()
            endpoint = LLMEndpoint(server.base_url, "policy", temperature=1.0, max_tokens=32)
            return asyncio.run(runner.run(QUESTION, endpoint)), server

    return run


@pytest.mark.long
@pytest.mark.parametrize("name", ["Agent", "Plain"])
def test_a_class_is_run_sampled_as_the_run_does_and_earns_what_it_posts_last(
    play: Play, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEACHER_API_KEY", "secret")
    episode, server = play(agl_class="{file}:" + name)
    assert (episode.final_answer, episode.stop_reason, episode.n_turns) == ("5", "answered", 1)
    assert episode.environment_reward == 1.0
    sent = server.requests[0].json
    assert sent["messages"] == [{"role": "user", "content": "2 + 3?easyb"}]
    assert (sent["model"], sent["temperature"], sent["max_tokens"]) == ("policy", 1.0, 32)


@pytest.mark.long
def test_its_reward_is_the_default_scorers(play: Play) -> None:
    config = build_config({"agent": {"agl_class": "x:Agent", "tools": []}, "reward": {"sql_bonus": 0.0}})
    earned = asyncio.run(score(play(chat_reply("4"))[0], scoring_of(config)))
    assert not earned.unscored and earned.total == 0.0
    episode = play(text=AGENT.replace("for value in VALUES", "for value in []"))[0]
    unscored = asyncio.run(score(episode, scoring_of(config)))
    assert unscored.unscored == "no_environment" and "nor the agent" in unscored.explanation


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new", "fault", "says"),
    [
        ("VALUES = [", "VALUES = [lambda text: 5, ", EpisodeFault, "must be a number from 0 to 1"),
        ("VALUES = [", "VALUES = [lambda text: '1', ", EpisodeFault, "must be a number from 0 to 1"),
        ('{"value": value(text)}', "{}", EpisodeFault, "422"),
        ("import openai", "import openai\n    raise SystemExit(7)", EpisodeFault, "status 7"),
        ("class Agent", "class Other", EpisodeFault, "Agent"),
        ("chat.completions.create(", 'completions.create(prompt="x", ', EpisodeFault, "404"),
    ],
)
def test_what_goes_wrong_is_a_fault(play: Play, old: str, new: str, fault: type[Fault], says: str) -> None:
    with pytest.raises(fault) as told:
        play(text=AGENT.replace(old, new).replace("messages=said, ", "" if "prompt=" in new else "messages=said, "))
    assert says in str(told.value)


def test_a_fault_of_the_model_is_the_models(play: Play) -> None:
    with pytest.raises(LLMFault, match="500"):
        play(error_reply(500, "boom"))


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        ({"agl_class": "Agent"}, "names no class"),
        ({"agl_class": "/not/there.py:Agent"}, "no file /not/there.py"),
        ({"agl_python": "/not/there/python"}, "agent.agl_python"),
        ({"command": "python x.py"}, "two ways to play"),
        ({"agl_class": ""}, "agent.env_map = .* has nothing to do: set agent.agl_class"),
    ],
)
def test_what_cannot_work_is_refused_before_the_run(play: Play, agent: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        play(**agent)


def test_a_key_that_no_row_has_is_named(play: Play) -> None:
    with pytest.raises(EpisodeFault, match=r"agent.env_map.X = 'input.no.such': question q1 has no 'no'"):
        play(env_map={**ENV_MAP, "X": "input.no.such"})
