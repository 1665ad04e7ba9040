"""Spans -> LLM calls, for rollouts that were scored.

Guarantees: a rollout without a reward, or with an LLM call whose token ids are missing or go on from a call that is not
there, gives no call at all (never half a trace, never a made-up 0); one call per LLM call whatever the order or number
of copies in which spans arrive, and whether they hold ids packed (agl_plugin.proxy.tokens) or as lists.
Does not cover merging turns into trajectories: that is the daemon's work.
"""

from __future__ import annotations

import ast
import json
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from agentlightning.emitter.reward import get_rewards_from_span
from agentlightning.types import Span

from agl_plugin.proxy import tokens
from agl_plugin.proxy.spans import CALL_SPAN, LOG_PROBS, WEIGHTS, plain_log_probs
from agl_plugin.proxy.tokens import Prompt
from agl_plugin.update.rows import Call
from foundation.rollout_keys import AWAITS_GROUP, LLM_CALLS_KEY, UNSCORED_KEY

logger = logging.getLogger(__name__)


def reward_of(spans: Sequence[Span]) -> float | None:
    """The primary value of the last reward span by sequence id, or None."""
    values = [(s.sequence_id, rewards[0].value) for s in spans if (rewards := get_rewards_from_span(s))]
    return max(values, key=lambda pair: pair[0])[1] if values else None


def annotation_of(spans: Sequence[Span], key: str) -> Any:
    """The last value of a span attribute by sequence id, or None."""
    values = [(s.sequence_id, s.attributes[key]) for s in spans if s.attributes and key in s.attributes]
    return max(values, key=lambda pair: pair[0])[1] if values else None


def _listed(span: Span, before: Prompt | None) -> Call | None:
    """The LLM call of a span with lists as text, or None when it has no token ids.

    agent-lightning's own reading parses the same text, but leaves out the log-probabilities and why the call ended.
    """
    notes = span.attributes or {}
    prompt, choices = (notes.get(f"llm.hosted_vllm.{name}") for name in ("prompt_token_ids", "choices"))
    if not isinstance(prompt, str) or not isinstance(choices, str):
        return None
    try:
        prompt_ids, (choice,) = json.loads(prompt), ast.literal_eval(choices)
    except (ValueError, SyntaxError):  # "None": the server gave no ids; several choices: one would go untrained
        return None
    token_ids = choice.get("token_ids")
    if not prompt_ids or not token_ids:
        return None
    log_probs = choice.get(LOG_PROBS) or plain_log_probs(choice.get("logprobs"))  # LiteLLM's span has the latter
    numbers = np.array(log_probs, tokens.NUMBERS_TYPE)
    return _call(span, Prompt.of(prompt_ids, token_ids, before=before), numbers, choice.get("finish_reason"))


def _packed(span: Span, prompt: Prompt) -> Call:
    """The LLM call of a span with packed numbers. Raises ValueError."""
    notes = span.attributes or {}
    text = notes.get(tokens.LOG_PROBS)
    log_probs = tokens.unpack(text, tokens.NUMBERS_TYPE) if text else np.array((), tokens.NUMBERS_TYPE)
    return _call(span, prompt, log_probs, notes.get(tokens.FINISH))


def _call(span: Span, prompt: Prompt, log_probs: tokens.Array, finish_reason: Any) -> Call:
    """Its log-probabilities are believed where there is one per token."""
    believed = log_probs.tolist() if len(log_probs) == len(prompt.sampled) else ()
    return Call(prompt, prompt.sampled.tolist(), believed, finish_reason or "", facts_of(span))


def _response_id(span: Span) -> str:
    return str((span.attributes or {}).get("llm.hosted_vllm.id") or span.span_id)


def facts_of(span: Span) -> dict[str, Any]:
    """What a call's span says of it besides tokens; None where it does not say. Times are seconds since 1970."""
    notes = span.attributes or {}
    return {
        "response_id": _response_id(span),
        "attempt_id": span.attempt_id,
        "weights_version": notes.get(WEIGHTS),
        "started_s": span.start_time,
        "ended_s": span.end_time,
    }


def _call_spans(spans: Sequence[Span]) -> dict[str, Span]:
    """The spans of calls by response id, in order; of copies the first."""
    calls: dict[str, Span] = {}
    for span in sorted(spans, key=lambda s: (s.sequence_id, s.start_time)):
        if span.name == CALL_SPAN:
            calls.setdefault(_response_id(span), span)
    return calls


def n_missing(spans: Sequence[Span]) -> int:
    """How many calls others go on from, and no span has."""
    calls = _call_spans(spans)
    return len({(span.attributes or {}).get(tokens.AFTER) for span in calls.values()} - {None, *calls})


def read_calls(spans: Sequence[Span]) -> tuple[list[Call], str]:
    """One per LLM call, in order, whatever the order or number of copies of its span; and why there are none
    where a packed one cannot be put together.

    A prompt holds what is new since another call's, so that memory grows with that alone.
    """
    call_spans, calls = _call_spans(spans), list[Call]()
    try:
        packed = {name: span for name, span in call_spans.items() if tokens.NEW in (span.attributes or {})}
        prompts = tokens.linked({name: tokens.part_of(span.attributes or {}) for name, span in packed.items()})
        for name, span in call_spans.items():
            before: Any = calls[-1].prompt if calls else None
            call = _packed(span, prompts[name]) if name in prompts else _listed(span, before)
            calls += [call] if call else []
    except (ValueError, TypeError, OverflowError) as exc:
        return [], str(exc)
    return calls, ""


def scored_calls(spans: Sequence[Span]) -> list[Call]:
    """The calls of one attempt, in order; [] when it must not be learned from.

    A prompt is a Prompt; tokens are ints as vLLM saw and sampled them, with their log-probabilities where the proxy
    asked for them. A rollout that awaits its group has no reward yet.
    """
    if reward_of(spans) is None and annotation_of(spans, UNSCORED_KEY) != AWAITS_GROUP:
        return []
    calls, broken = read_calls(spans)
    if broken:
        logger.warning("rollout left out: %s", broken)
    expected = annotation_of(spans, LLM_CALLS_KEY)
    if not calls or (expected is not None and len(calls) != int(expected)):
        logger.warning("rollout left out: %d LLM calls, %d with token ids", expected or 0, len(calls))
        return []
    return calls
