"""A scripted policy that speaks through a real tokenizer and chat template, as vLLM with one of its parsers does.

A TemplatePolicy is a handler for sql_agent.testing.server.openai_server: it renders the request, tokenizes it,
"samples" the next scripted text and parses it. What it saw and said are calls, as agl_plugin.update.rows has
them. Not covered: texts that a model would sample in other tokens than the tokenizer's own.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from vllm.entrypoints.chat_utils import (
    _parse_chat_message_content,  # pyright: ignore[reportPrivateUsage]
    _postprocess_messages,  # pyright: ignore[reportPrivateUsage]
)
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.tool_parsers import ToolParserManager

from agl_plugin.update.rows import Call
from sql_agent.testing.server import Answer, chat_reply


@dataclass
class TemplatePolicy:
    """`texts` are what it says, call by call, without the end of the turn.

    `kwargs` go to the chat template, and what a request says of them wins.
    """

    tokenizer: Any
    texts: Sequence[str]
    kwargs: dict[str, Any] = field(default_factory=dict)
    parser: str = "hermes"
    calls: list[Call] = field(default_factory=list)

    def __call__(self, request: dict[str, Any]) -> Answer:
        text = self.texts[len(self.calls)]
        sampled = [*self.tokenizer(text).input_ids, self.tokenizer.eos_token_id]
        kwargs = self.kwargs | request.get("chat_template_kwargs", {})
        prompt = prompt_ids(self.tokenizer, request["messages"], request.get("tools"), **kwargs)
        self.calls.append(Call(prompt, sampled))
        asked = ChatCompletionRequest.model_validate({"model": "m", **request})
        tools: Any = asked.tools
        parser = ToolParserManager.get_tool_parser(self.parser)(self.tokenizer, tools)
        parsed = parser.extract_tool_calls(text, asked)
        if not parsed.tools_called:
            return chat_reply(parsed.content)
        calls = [call.model_dump() for call in parsed.tool_calls]
        return chat_reply(parsed.content, finish_reason="tool_calls", tool_calls=calls)


def prompt_ids(tokenizer: Any, messages: Sequence[dict[str, Any]], tools: Any, **kwargs: Any) -> list[int]:
    """The ids of a request's prompt, messages prepared as vLLM prepares them."""
    plain: Any = as_read(messages)
    _postprocess_messages(plain)
    return tokenizer.apply_chat_template(plain, tools=tools, add_generation_prompt=True, return_dict=False, **kwargs)


def as_read(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages of a request as vLLM's server reads them."""
    parser = SimpleNamespace(mm_placeholder_storage=dict, model_config=SimpleNamespace(enable_prompt_embeds=False))
    tracker: Any = SimpleNamespace(create_parser=lambda **_: parser)
    asked = ChatCompletionRequest.model_validate({"model": "m", "messages": copy.deepcopy(list(messages))}).messages
    parse = _parse_chat_message_content
    return [dict(one) for said in asked for one in parse(said, tracker, "string", interleave_strings=False)]
