"""hello_agents.core: which model an agent speaks through."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LLMConfig:
    """A model of an OpenAI-compatible server; address and key come from OPENAI_BASE_URL and OPENAI_API_KEY."""

    model: str
    temperature: float = 0.0
    max_turns: int = 10
