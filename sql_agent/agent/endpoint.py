"""Where and how an episode samples the policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

OVERFLOW_MARKS = (
    "maximum context length",
    "context_length_exceeded",
    "max_tokens must be at least 1",
    "longer than the",
)


@dataclass(frozen=True)
class LLMEndpoint:
    """Where and how to sample the policy. `temperature` 0 is greedy, `top_k` 0 is off.

    `max_tokens` bounds one call, None: the server. At `untrained_url` the same model answers calls that are not
    trained on; empty where nothing is trained.
    """

    base_url: str
    model: str
    api_key: str = field(default="EMPTY", repr=False)
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int | None = None
    extra_body: dict[str, Any] | None = None
    untrained_url: str = ""

    def for_agent(self, name: str) -> str:
        """The address for one agent of several, by whose name agent.match chooses. Only for episodes of one's own."""
        return f"{self.base_url.removesuffix('/v1')}/agent/{name}/v1"


def is_overflow(text: str) -> bool:
    """True when an endpoint's refusal says that the conversation is too long."""
    return any(mark in text for mark in OVERFLOW_MARKS)
