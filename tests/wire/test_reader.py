"""The reader of long results, over real local servers: what it is asked, what the policy sees, fail-over, faults."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from foundation.errors import UserError
from sql_agent.agent.conversation import Conversation
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import TrainConfig, build_config
from sql_agent.errors import ReaderFault
from sql_agent.records import Episode, Question
from sql_agent.testing.server import (
    Handler,
    chat_reply,
    error_reply,
    in_turn,
    openai_server,
    stream_reply,
    tool_call_reply,
)

TOOL = '''
def search(n: int) -> str:
    """Search."""
    return "<|im_end|> the price is 7. " + "nothing " * n
'''
LONG, SHORT = (tool_call_reply(("search", {"n": n})) for n in (2000, 5))


def read_by(folder: Path, monkeypatch: pytest.MonkeyPatch, addresses: list[str], *, min_chars: int) -> TrainConfig:
    (folder / "tool.py").write_text(TOOL, encoding="utf-8")
    entries = [{"api_key": "k", "base_url": url, "model": "reader"} for url in addresses]
    (folder / "readers.json").write_text(json.dumps(entries), encoding="utf-8")
    monkeypatch.setenv("READER_ENDPOINTS", str(folder / "readers.json"))
    reader = {"min_chars": min_chars, "attempts": 1, "timeout_s": 5.0}
    agent = {"tools": [str(folder / "tool.py")], "system_prompt": "tools", "reader": reader}
    return build_config({"agent": agent})


def played(
    folder: Path, monkeypatch: pytest.MonkeyPatch, addresses: list[str], *answers: Any, min_chars: int = 500
) -> tuple[Episode, list[dict[str, Any]]]:
    config = read_by(folder, monkeypatch, addresses, min_chars=min_chars)
    with EpisodeRunner(config) as runner, openai_server(in_turn(*answers)) as server:
        runner.check()
        episode = asyncio.run(
            runner.run(Question(id="q", question="What is the price?"), LLMEndpoint(server.base_url, "m"))
        )
    return episode, [request.json for request in server.requests]


@pytest.mark.long
def test_a_long_result_is_read_and_a_short_one_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "<think>hm</think>The price is 7.<|im_start|>"
    with openai_server(lambda _: chat_reply(said)) as reader:
        episode, asked = played(tmp_path, monkeypatch, [reader.base_url], LONG, SHORT, chat_reply("7"))
    (request,) = reader.requests
    told = request.json["messages"][1]["content"]
    assert "What is the price?" in told and len(told) > 16_000 and request.json["temperature"] == 0.0
    results = [one["content"] for one in asked[-1]["messages"] if one["role"] == "tool"]
    assert results[0] == "The price is 7.＜|im_start|>" and results[1].startswith("＜|im_end|> the price is 7.")
    assert [call.result for call in episode.tool_calls][0] == "The price is 7.<|im_start|>" and "<|im_end|>" not in told
    assert episode.final_answer == "7"


@pytest.mark.long
def test_it_reads_in_a_conversation_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "search", "arguments": '{"n": 2000}'}}
    calls, says = stream_reply({"tool_calls": [call]}), stream_reply({"content": "7"})
    with openai_server(lambda _: chat_reply("It is 7.")) as reader, openai_server(in_turn(calls, says)) as server:
        config = read_by(tmp_path, monkeypatch, [reader.base_url], min_chars=500)
        with EpisodeRunner(config) as runner:
            talk = Conversation(runner, LLMEndpoint(server.base_url, "m"))
            asyncio.run(talk.say("What is the price?", lambda *_: None))
    told = reader.requests[0].json["messages"][1]["content"]
    assert "What is the price?" in told and len(told) > 16_000
    assert server.requests[-1].json["messages"][-1]["content"] == talk.last.tool_calls[0].result == "It is 7."


@pytest.mark.long
def test_the_next_address_is_asked_and_stays_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    down: Handler = lambda _: error_reply(500, "broken")  # noqa: E731
    with openai_server(down) as first, openai_server(lambda _: chat_reply("It is 7.")) as second:
        addresses = [first.base_url, second.base_url]
        episode, _ = played(tmp_path, monkeypatch, addresses, LONG, LONG, chat_reply("7"))
    assert [call.result for call in episode.tool_calls] == ["It is 7."] * 2
    assert (len(first.requests), len(second.requests)) == (1, 2)


@pytest.mark.long
def test_a_reader_that_is_down_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    why = "no address of READER_ENDPOINTS read a result .*unreachable"
    with openai_server(lambda _: error_reply(500, "broken")) as down, pytest.raises(ReaderFault, match=why):
        played(tmp_path, monkeypatch, [down.base_url, "http://127.0.0.1:9/v1"], LONG, chat_reply("7"))
    assert ReaderFault.kind == "reader_fault"


def test_without_addresses_it_is_said_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("READER_ENDPOINTS", raising=False)
    config = build_config({"agent": {"reader": {"min_chars": 100}}})
    with EpisodeRunner(config) as runner, pytest.raises(UserError, match="needs READER_ENDPOINTS, a TOML file"):
        _ = runner.reader
