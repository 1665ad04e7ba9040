"""What was said in an episode after the question, as plain chat messages.

Guarantees: every message can be written as JSON in UTF-8 (a lone surrogate becomes a question mark). The system prompt
and the question are not repeated here; a model's hidden reasoning is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from foundation.files import writable

Message = dict[str, Any]


def assistant_message(items: Iterable[Any]) -> Message:
    """{role, content, tool_calls: [{id, name, arguments}]} from the output items of one LLM call."""
    texts: list[str] = []
    calls: list[Message] = []
    for item in items:
        if item.type == "message":
            texts += [getattr(part, "text", "") or getattr(part, "refusal", "") for part in item.content]
        elif item.type == "function_call":
            calls.append({"id": item.call_id, "name": item.name, "arguments": writable(item.arguments)})
    return {"role": "assistant", "content": writable("".join(texts)), "tool_calls": calls}
