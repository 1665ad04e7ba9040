"""What takes the place of vLLM's own readings; register.py says why each is there. Light to import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CALL, THOUGHT_ENDS = "<tool_call>", "</think>"


def keeping_thoughts(extract: Callable[..., Any]) -> Callable[..., Any]:
    """A tool parser's `extract_tool_calls`, whose content keeps a thought before a call as the model wrote it."""

    def extract_tool_calls(self: Any, model_output: str, request: Any) -> Any:
        before, call, rest = model_output.partition(CALL)
        thought, end, content = before.rpartition(THOUGHT_ENDS)
        parsed = extract(self, f"{content}{call}{rest}", request)
        if parsed.tools_called and end:
            parsed.content = f"{thought}{end}{parsed.content or ''}"
        return parsed

    return extract_tool_calls
