"""Tool calls of a conversation have ids of their own, whatever the endpoint calls them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from agents import function_tool
from hypothesis import given
from hypothesis import strategies as st

from sql_agent.agent.call_ids import tell_apart
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.api.compat.hello_agents.agents import SimpleAgent
from sql_agent.api.compat.hello_agents.core import LLMConfig
from sql_agent.config import build_config
from sql_agent.records import Question
from sql_agent.testing.server import chat_reply, in_turn, openai_server, tool_call_reply

CALLS = [tool_call_reply(("python", {"code": f"print({n})"})) for n in (1, 2, 3)]


@given(st.lists(st.lists(st.sampled_from(["", "call_0", "call_1", "call_0.1"]), max_size=4), max_size=5))
def test_all_ids_of_a_conversation_differ(turns: list[list[str]]) -> None:
    calls = [[SimpleNamespace(id=name) for name in turn] for turn in turns]
    ids: set[str] = set()
    for answer in calls:
        tell_apart(answer, ids)
    assert len(ids) == sum(map(len, calls)) and all(ids)


def test_an_endpoint_that_numbers_each_answer_anew_is_understood() -> None:
    """Each of these calls is call_0."""
    config = build_config({"agent": {"tools": ["python"], "system_prompt": "tools"}})
    with openai_server(in_turn(*CALLS, chat_reply("done"))) as server, EpisodeRunner(config) as runner:
        question = Question(id="q", question="?")
        episode = asyncio.run(runner.run(question, LLMEndpoint(base_url=server.base_url, model="m")))
    assert (episode.final_answer, episode.stop_reason) == ("done", "answered")
    sent = [m["tool_call_id"] for m in server.requests[-1].json["messages"] if m["role"] == "tool"]
    assert len(set(sent)) == len(CALLS)


def test_so_it_is_by_the_agent_of_hello_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    def python(code: str) -> str:
        return code

    tool = SimpleNamespace(as_agent_tool=lambda: function_tool(python))
    with openai_server(in_turn(*CALLS, chat_reply("done"), chat_reply("done"))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        agent = SimpleAgent("name", LLMConfig(model="m"), tools=[tool])
        assert agent.run("?") == agent.run("?") == "done", "twice, each in an event loop of its own"
