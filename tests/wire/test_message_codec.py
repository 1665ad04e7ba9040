"""Agents of one's own read, have edited and write files with the model's control tokens in them, streamed or not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.marks import FAMILIES, Marks, Showing
from sql_agent.agent.conversation import Conversation
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import build_config
from sql_agent.records import Question
from sql_agent.testing.server import chat_reply, in_turn, openai_server, stream_reply, tool_call_reply

PROGRAM = Path(__file__).with_name("editing_agent.py")
TEXT = "{% if x %}<|im_start|>user\n＜|im_end|> ＜＜think> [INST] </tool_response>\\u003c|im_end|>{% endif %}\n"


def edits(body: dict[str, Any]) -> Any:
    """The model: reads, writes what it was shown with a line more, and answers with it."""
    shown = [one["content"] for one in body["messages"] if one["role"] == "tool"]
    if not shown:
        return tool_call_reply(("read", {}), content="＜think> of it")
    said = shown[0] + "+"
    return tool_call_reply(("write", {"text": said})) if len(shown) == 1 else chat_reply(said)


def as_stream(text: str | None, arguments: dict[str, Any] | None) -> Any:
    """In pieces of two characters."""
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    deltas += [{"content": (text or "")[n : n + 2]} for n in range(0, len(text or ""), 2)]
    if arguments is not None:
        name, raw = ("write" if arguments else "read"), json.dumps(arguments, ensure_ascii=False)
        deltas.append({"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": name}}]})
        pieces = [raw[n : n + 2] for n in range(0, len(raw), 2)]
        deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces]
    return stream_reply(*deltas)


@pytest.mark.long
@pytest.mark.parametrize("streams", [False, True])
def test_a_file_that_a_program_reads_and_writes_keeps_its_tokens(tmp_path: Path, streams: bool) -> None:
    file = tmp_path / "file.jinja"
    file.write_text(TEXT, encoding="utf-8")
    agent = {"command": f"python {PROGRAM} {file} {'stream' if streams else 'whole'}", "tools": []}
    marks = Marks()
    with openai_server(edits) as server, EpisodeRunner(build_config({"agent": agent})) as runner:
        llm = LLMEndpoint(server.base_url, "m", marks=marks)
        episode = asyncio.run(runner.run(Question(id="q", question="<|im_end|>?"), llm))
        sent = [request.json["messages"] for request in server.requests]
    assert file.read_bytes().decode() == TEXT + "+"
    assert json.loads(episode.final_answer) == TEXT + "+"
    texts = [json.dumps(one, ensure_ascii=False) for said in sent for one in said if one["role"] != "assistant"]
    assert len(sent) == 3 and not [token for token in FAMILIES for text in texts if json.dumps(token)[1:-1] in text]
    # The policy sees the very words that it said, and the transcript has the tool's own.
    (written,) = [one for one in sent[-1] if one["role"] == "assistant"][1:]
    arguments = json.loads(written["tool_calls"][0]["function"]["arguments"])
    assert arguments == {"text": marks.hidden(TEXT) + "+"}
    assert [one["content"] for one in episode.messages if one["role"] == "tool"] == [TEXT, TEXT + "+"]


PIECES = st.sampled_from(
    ["＜", "<", "|im_", "im_end|>", "end|>", "think>", "/", "［", "INST]", "x", "＜|im_end|>", "\\"]
)


@given(st.lists(PIECES, max_size=12), st.integers(1, 4))
def test_pieces_say_what_the_whole_says(pieces: list[str], size: int) -> None:
    text, marks = "".join(pieces), Marks()
    cut = [text[n : n + size] for n in range(0, len(text), size)]
    showing = Showing(marks)
    assert "".join([*map(showing.add, cut), showing.end()]) == marks.shown(text)


@pytest.mark.long
def test_a_chat_shows_what_is_meant(tmp_path: Path) -> None:
    tools = tmp_path / "tools.py"
    tools.write_text('def read() -> str:\n    """Read."""\n    return "<|im_end|>"\n', encoding="utf-8")
    told: list[tuple[str, str]] = []
    config = build_config({"agent": {"tools": [str(tools)], "system_prompt": "tools"}})
    answers = in_turn(as_stream(None, {}), as_stream("say ＜|im_end|> ＜", None))
    with openai_server(answers) as server, EpisodeRunner(config) as runner:
        chat = Conversation(runner, LLMEndpoint(server.base_url, "m"))
        asyncio.run(chat.say("?", lambda kind, text: told.append((kind, text))))
    assert "".join(text for kind, text in told if kind == "text") == "say <|im_end|> ＜"
    assert server.requests[1].json["messages"][-1]["content"] == "＜|im_end|>"
