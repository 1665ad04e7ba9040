"""Tool calls in what a model wrote: the hermes form, `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.

Guarantees: the same message as vLLM's parser of that name makes of the same text; text that is no call stays text.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

BEGIN = "<tool_call>"
CALL = re.compile(r"<tool_call>(.*?)</tool_call>|<tool_call>(.*)", re.DOTALL)


def message_of(text: str) -> dict[str, Any]:
    """The assistant's message as the chat completions API writes it."""
    plain = {"role": "assistant", "content": text}
    if BEGIN not in text:
        return plain
    try:
        calls = [_call(json.loads(whole or cut)) for whole, cut in CALL.findall(text)]
    except (ValueError, KeyError, TypeError, RecursionError):
        return plain
    return {"role": "assistant", "content": text[: text.find(BEGIN)] or None, "tool_calls": calls}


def _call(said: dict[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(said["arguments"], ensure_ascii=False)
    function = {"name": said["name"], "arguments": arguments}
    return {"id": f"call_{secrets.token_hex(8)}", "type": "function", "function": function}
