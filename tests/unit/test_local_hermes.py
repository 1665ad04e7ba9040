"""Tool calls in text: the same message as vLLM's hermes parser makes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser

from sql_agent.local.endpoint import message_of

REQUEST = ChatCompletionRequest.model_validate({"messages": [{"role": "user", "content": "q"}], "model": "m"})


class Vocabulary:
    """All of a tokenizer that vLLM's parser asks for."""

    def get_vocab(self) -> dict[str, int]:
        return {"<tool_call>": 0, "</tool_call>": 1}

    def encode(self, text: str, **_: Any) -> list[int]:
        return [0 if text == "<tool_call>" else 1]

    def decode(self, ids: list[int]) -> str:
        return ["<tool_call>", "</tool_call>"][ids[0]]


def by_vllm(text: str) -> dict[str, Any]:
    parser = Hermes2ProToolParser(Vocabulary())  # pyright: ignore[reportArgumentType]
    found = parser.extract_tool_calls(text, REQUEST)
    if not found.tools_called:
        return {"role": "assistant", "content": found.content}
    calls = [(call.function.name, json.loads(call.function.arguments)) for call in found.tool_calls]
    return {"role": "assistant", "content": found.content, "tool_calls": calls}


def here(text: str) -> dict[str, Any]:
    message = message_of(text)
    if "tool_calls" in message:
        functions = [call["function"] for call in message["tool_calls"]]
        message["tool_calls"] = [(one["name"], json.loads(one["arguments"])) for one in functions]
    return message


CALL = '<tool_call>\n{"name": "query", "arguments": {"sql": "SELECT 1"}}\n</tool_call>'


@pytest.mark.parametrize(
    "text",
    [
        *("", "an answer", CALL, f"let me see {CALL}", f"{CALL}\n{CALL}", f"{CALL} and more", CALL[:-12]),
        *(CALL[:40], "<tool_call>nothing</tool_call>", "<tool_call>", "</tool_call>"),
        '<tool_call>{"name": "a"}</tool_call>',
        *("<tool_call>[1]</tool_call>", "<tool_call>7</tool_call>", f"{CALL}<tool_call>broken"),
    ],
)  # fmt: skip
def test_the_message_is_that_of_vllm(text: str) -> None:
    assert here(text) == by_vllm(text)


PIECES = st.sampled_from(["<tool_call>", "</tool_call>", '{"name": "q", "arguments": {}}', "text", "\n", "{", "}", " "])


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=8).map("".join))
def test_it_is_for_any_text(text: str) -> None:
    assert here(text) == by_vllm(text)
