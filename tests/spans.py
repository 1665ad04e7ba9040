"""Spans as agent-lightning stores them: calls as the proxy shapes them, rewards, faults."""

from __future__ import annotations

from typing import Any

import agentlightning as agl
from agentlightning.types import Span

from agl_plugin.update.adapter import read_calls
from agl_plugin.update.rows import Call
from foundation.rollout_keys import AWAITS_GROUP, LLM_CALLS_KEY, RECORD_KEY, UNSCORED_KEY

ROLLOUT, ATTEMPT = "ro-1", "at-1"


def span(name: str, attributes: dict[str, Any], *, seq: int, rollout: str = ROLLOUT, attempt: str = ATTEMPT) -> Span:
    return Span.from_attributes(
        name=name, attributes=attributes, sequence_id=seq, rollout_id=rollout, attempt_id=attempt, start_time=float(seq)
    )


def llm_call(
    prompt: list[int],
    response: list[int],
    *,
    seq: int,
    call_id: str | None = None,
    log_probs: list[float] | None = None,
    finish_reason: str = "stop",
    weights: int | None = None,
    **ids: str,
) -> Span:
    """What the proxy writes of one call: lists as text, the response's ids and log-probabilities within `choices`."""
    choice = {"finish_reason": finish_reason, "index": 0, "message": {"content": "x"}, "token_ids": response}
    attributes: dict[str, Any] = {
        "llm.hosted_vllm.id": call_id or f"chatcmpl-{seq}",
        "llm.hosted_vllm.prompt_token_ids": str(prompt),
        "llm.hosted_vllm.choices": str([choice | ({"log_probs": log_probs} if log_probs else {})]),
    }
    if weights is not None:
        attributes["agentgrpo.weights_version"] = weights
    return span("raw_gen_ai_request", attributes, seq=seq, **ids)


def call_of(span: Span) -> Call | None:
    """The call of a span alone."""
    return next(iter(read_calls([span])[0]), None)


def call_without_ids(*, seq: int, **ids: str) -> Span:
    """A call whose server gave no token ids."""
    attributes = {"llm.hosted_vllm.id": f"chatcmpl-{seq}", "llm.hosted_vllm.choices": "[{'index': 0}]"}
    return span("raw_gen_ai_request", attributes, seq=seq, **ids)


def noise(*, seq: int, **ids: str) -> list[Span]:
    """The other spans that the proxy writes around a call."""
    names = ["litellm_request", "Received Proxy Server Request", "auth /chat/completions"]
    return [span(name, {"gen_ai.request.model": "m"}, seq=seq, **ids) for name in names]


def reward_span(total: float, *, seq: int, n_calls: int | None = None, record: str = "", **ids: str) -> Span:
    """A reward as SqlAgent emits it: "total" first, its parts after it."""
    notes: dict[str, Any] = {RECORD_KEY: record} if record else {}
    if n_calls is not None:
        notes[LLM_CALLS_KEY] = n_calls
    core = agl.emit_reward({"total": total, "sql": 0.1}, primary_key="total", attributes=notes, propagate=False)
    rollout, attempt = ids.get("rollout", ROLLOUT), ids.get("attempt", ATTEMPT)
    return Span.from_core_fields(core, rollout_id=rollout, attempt_id=attempt, sequence_id=seq)


def fault_span(reason: str, *, seq: int, record: str = "", **ids: str) -> Span:
    """The annotation that an unscored rollout leaves instead of a reward."""
    return span("agentlightning.annotation", {UNSCORED_KEY: reason, RECORD_KEY: record or "{}"}, seq=seq, **ids)


def waiting_span(*, seq: int, n_calls: int, record: str, **ids: str) -> Span:
    """What a rollout leaves that will get its reward together with its group."""
    notes = {UNSCORED_KEY: AWAITS_GROUP, RECORD_KEY: record, LLM_CALLS_KEY: n_calls}
    return span("agentlightning.annotation", notes, seq=seq, **ids)
