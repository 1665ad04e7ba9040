"""Conversations to learn from, as chat templates take them.

Guarantees: messages are those that vLLM would hand to the template of the same request (arguments of calls are objects,
missing content is empty), so the same conversation gives the same tokens here and in GRPO. What cannot be used is
Unusable, with a reason that does not vary with its content.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agl_plugin.update.rows import Call
from foundation.chat_template import Message, plain_message
from foundation.errors import Unusable


@dataclass(frozen=True)
class Chat:
    """A conversation, and the tools that it was offered.

    `group` is what its reward can be compared in: a question, or a question at one step of a run. `reward` is None
    where none is known. A stored rollout has `calls`, the tokens that were seen and sampled, and no messages. `context`
    are the places of messages of the assistant that are read and not learned from: those of weight 0.
    """

    messages: list[Message]
    tools: list[Message] = field(default_factory=list)
    group: str = ""
    reward: float | None = None
    calls: Sequence[Call] = ()
    context: frozenset[int] = frozenset()


def chat_of(messages: Any, tools: Iterable[Message] = (), *, group: str = "", reward: float | None = None) -> Chat:
    """The conversation with its messages in the template's form. Raises Unusable."""
    if not isinstance(messages, list) or not messages:
        raise Unusable("messages is no list of messages")
    plain = in_order_of_calls([plain_message(message) for message in messages])
    if not any(message["role"] == "assistant" for message in plain):
        raise Unusable("no message of the assistant")
    if plain[0]["role"] == "assistant":
        raise Unusable("the assistant begins, with nothing to answer")
    weights = [message.get("weight") for message in messages]
    if any(weight not in (None, 0, 1) for weight in weights):
        raise Unusable("the weight of a message is neither 0 nor 1")
    context = frozenset(n for n, weight in enumerate(weights) if weight == 0)
    if all(n in context for n, message in enumerate(plain) if message["role"] == "assistant"):
        raise Unusable("all messages of the assistant have weight 0")
    return Chat(plain, list(tools), group, reward, context=context)


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
