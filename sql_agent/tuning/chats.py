"""Conversations to learn from, as chat templates take them.

Guarantees: messages are those that vLLM would hand to the template of the same request (arguments of calls are objects,
missing content is empty), so the same conversation gives the same tokens here and in GRPO. What cannot be used is
Unusable, with a reason that does not vary with its content.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agl_plugin.update.rows import Call
from foundation.chat_request import ROLES, text_parts
from foundation.errors import AgentGRPOError

Message = dict[str, Any]


class Unusable(AgentGRPOError):
    """Why a row cannot be learned from."""


@dataclass(frozen=True)
class Chat:
    """A conversation, and the tools that it was offered.

    `group` is what its reward can be compared in: a question, or a question at one step of a run. `reward` is None
    where none is known. A stored rollout has `calls`, the tokens that were seen and sampled, and no messages.
    """

    messages: list[Message]
    tools: list[Message] = field(default_factory=list)
    group: str = ""
    reward: float | None = None
    calls: Sequence[Call] = ()


def chat_of(messages: Any, tools: Iterable[Message] = (), *, group: str = "", reward: float | None = None) -> Chat:
    """The conversation with its messages in the template's form. Raises Unusable."""
    if not isinstance(messages, list) or not messages:
        raise Unusable("messages is no list of messages")
    plain = in_order_of_calls([plain_message(message) for message in messages])
    if not any(message["role"] == "assistant" for message in plain):
        raise Unusable("no message of the assistant")
    return Chat(plain, list(tools), group, reward)


def in_order_of_calls(messages: list[Message]) -> list[Message]:
    """The results of calls made at once in the order of the calls, as they are sent; they were noted as they ended."""
    ordered: list[Message] = []
    places: dict[str, int] = {}
    start = 0  # of the results since the last message that is none
    for message in messages:
        if message["role"] != "tool":
            places = {str(call.get("id")): n for n, call in enumerate(message.get("tool_calls", []))}
            start = len(ordered) + 1
        ordered.append(message)
        if message["role"] == "tool" and all(turn.get("tool_call_id") in places for turn in ordered[start:]):
            ordered[start:] = sorted(ordered[start:], key=lambda turn: places[turn["tool_call_id"]])
    return ordered


def plain_message(message: Any) -> Message:
    """One message: role, text, and calls as {type, function: {name, arguments: object}}. Raises Unusable."""
    if not isinstance(message, Mapping) or message.get("role") not in ROLES:
        raise Unusable(f"a message without a role of {', '.join(ROLES)}")
    plain: Message = {"role": message["role"], "content": _text(message.get("content"))}
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or (calls and plain["role"] != "assistant"):
        raise Unusable("tool_calls is no list, or not of the assistant")
    if calls:
        plain["tool_calls"] = [_call(call) for call in calls]
    if plain["role"] == "tool" and isinstance(message.get("tool_call_id"), str):
        plain["tool_call_id"] = message["tool_call_id"]
    return plain


def _text(content: Any) -> str:
    parts = text_parts(content)
    if parts is None:
        raise Unusable("a message whose content is not text")
    return "\n".join(parts)


def _call(call: Any) -> Message:
    """A call in OpenAI's form, or as rollouts have it ({id, name, arguments})."""
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise Unusable("a tool call without a name")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError:
            raise Unusable("a tool call whose arguments are no JSON") from None
    if not isinstance(arguments or {}, dict):
        raise Unusable("a tool call whose arguments are no JSON object")
    identity = {"id": call["id"]} if isinstance(call.get("id"), str) else {}
    return {**identity, "type": "function", "function": {"name": function["name"], "arguments": arguments or {}}}
