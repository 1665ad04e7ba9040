"""What stands in the span of an LLM call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CALL_SPAN = "raw_gen_ai_request"  # the span of the LLM proxy that holds a call
FIELD = "llm.hosted_vllm."  # begins the names of what was asked and answered
WEIGHTS = "agentgrpo.weights_version"  # how many updates the weights that answered have seen (the gateway alone)
LOG_PROBS = "log_probs"  # of a choice in it: one number per sampled token
LOG_PROB_REQUEST = {"logprobs": True, "top_logprobs": 0}
DIGITS = 7


def plain_log_probs(logprobs: Mapping[str, Any] | None) -> list[float]:
    """A choice's `logprobs` as numbers."""
    return [round(token["logprob"], DIGITS) for token in (logprobs or {}).get("content") or []]
