"""Messages between the policy and an agent of one's own, changed both ways so that each reads what the other wrote.

The policy is shown texts without its control tokens (foundation/marks.py), and copies what it was shown. An agent gets
what these texts really are, so a file that it reads, has edited and writes keeps them; where it sends the answer back
as history, the policy sees the very words that it said. Covered are content and the arguments of calls, also where a
program writes their JSON anew. Not covered: words that an agent changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from foundation.marks import Marks

Json = dict[str, Any]
TextChange = Callable[[str], str]


class MessageCodec:
    """The messages of one episode."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._raw_texts: dict[str, str] = {}  # key of the agent's text -> the policy's, where they differ

    def for_agent(self, message: Json) -> Json:
        """The message of an answer, which is remembered, as the agent gets it."""
        return _changed(message, self._remembering(self._marks.shown), self._remembering(self._marks.arguments))

    def _remembering(self, shown: TextChange) -> TextChange:
        def change(raw: str) -> str:
            text = shown(raw)
            if text != raw:
                self._raw_texts[_key(text)] = raw
            return text

        return change

    def for_policy(self, messages: Any) -> Any:
        """The messages of a request, with the answers as the policy wrote them."""
        if not self._raw_texts or not isinstance(messages, list):
            return messages
        return [
            _changed(message, self._raw, self._raw)
            if isinstance(message, Mapping) and message.get("role") == "assistant"
            else message
            for message in messages
        ]

    def _raw(self, text: str) -> str:
        return self._raw_texts.get(_key(text), text)


def _changed(message: Mapping[str, Any], text: TextChange, arguments: TextChange) -> Json:
    changed = dict(message)
    if isinstance(changed.get("content"), str):
        changed["content"] = text(changed["content"])
    calls = changed.get("tool_calls")
    if isinstance(calls, list):
        changed["tool_calls"] = [_changed_call(call, arguments) for call in calls]
    return changed


def _changed_call(call: Any, arguments: TextChange) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    return {**call, "function": {**function, "arguments": arguments(function["arguments"])}}


def _key(text: str) -> str:
    """The same for each way to write the same JSON object."""
    try:
        tree = json.loads(text) if text.lstrip().startswith("{") else None
        return json.dumps(tree, sort_keys=True) if isinstance(tree, dict) else text
    except (ValueError, RecursionError):
        return text
