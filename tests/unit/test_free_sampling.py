"""vLLM lets the policy sample its tool calls: no grammar chooses tokens for it, whatever a tool says of itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from foundation.environment import FIXED_ENV, prepare_environment
from sql_agent.tiny_policy.build import ensure_tiny_policy

pytest.importorskip("vllm")
TOOL = {
    "type": "function",
    "function": {
        "name": "query_database_by_sql",
        "strict": True,  # as openai-agents says of every tool
        "parameters": {
            "type": "object",
            "properties": {"sql": {"type": "string"}},
            "required": ["sql"],
            "additionalProperties": False,
        },
    },
}


def grammar(model: Path) -> object:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser

    request = ChatCompletionRequest.model_validate(
        {"model": "policy", "messages": [{"role": "user", "content": "?"}], "tools": [TOOL], "tool_choice": "auto"}
    )
    tools: Any = request.tools
    return Hermes2ProToolParser(AutoTokenizer.from_pretrained(model), tools).get_structural_tag(request)


def test_a_strict_tool_gets_no_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ |= dict.fromkeys(FIXED_ENV, "1")  # vLLM's default, or a user's wish
    model = ensure_tiny_policy(1)
    assert grammar(model)
    prepare_environment(cpu=False, offline=False)
    assert grammar(model) is None
