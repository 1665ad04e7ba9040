"""Spans -> triplets, for rollouts that were scored.

Guarantees: a rollout without a reward, or with an LLM call whose token ids are missing, gives no triplet at all (never
half a trace, never a made-up 0); one triplet per LLM call whatever the order or number of copies in which spans arrive.
A rollout that will get its reward together with its group gives its triplets without one.
Does not cover merging turns into trajectories: that is the daemon's work.
"""

from __future__ import annotations

import ast
import json
import logging
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from agentlightning.adapter.triplet import LlmProxyTraceToTriplet
from agentlightning.emitter.reward import get_rewards_from_span
from agentlightning.types import Span, Triplet

from agl_plugin.proxy.spans import CALL_SPAN, LOG_PROBS, WEIGHTS, plain_log_probs
from agl_plugin.update.rows import NAN, Turn
from foundation.rollout_keys import AWAITS_GROUP, LLM_CALLS_KEY, UNSCORED_KEY

logger = logging.getLogger(__name__)


def reward_of(spans: Sequence[Span]) -> float | None:
    """The primary value of the last reward span by sequence id, or None."""
    values = [(s.sequence_id, rewards[0].value) for s in spans if (rewards := get_rewards_from_span(s))]
    return max(values, key=lambda pair: pair[0])[1] if values else None


def annotation_of(spans: Sequence[Span], key: str) -> Any:
    """The last value of a span attribute by sequence id, or None."""
    found = [(s.sequence_id, s.attributes[key]) for s in spans if s.attributes and key in s.attributes]
    return max(found, key=lambda pair: pair[0])[1] if found else None


def call_of(span: Span) -> Triplet | None:
    """The LLM call that the proxy wrote into `span`, or None when it is another span or has no token ids.

    agent-lightning's own reading parses the same text, but leaves out the log-probabilities and why the call ended.
    """
    notes = span.attributes or {}
    prompt, choices = (notes.get(f"llm.hosted_vllm.{name}") for name in ("prompt_token_ids", "choices"))
    if span.name != CALL_SPAN or not isinstance(prompt, str) or not isinstance(choices, str):
        return None
    try:
        prompt_ids, (choice,) = json.loads(prompt), ast.literal_eval(choices)
    except (ValueError, SyntaxError):  # "None": the server gave no ids; several choices: one would go untrained
        return None
    token_ids = choice.get("token_ids")
    if not prompt_ids or not token_ids:
        return None
    response = {"token_ids": token_ids, "finish_reason": choice.get("finish_reason") or ""}
    log_probs = choice.get(LOG_PROBS) or plain_log_probs(choice.get("logprobs"))  # LiteLLM's span has the latter
    if len(log_probs) == len(token_ids):
        response[LOG_PROBS] = log_probs
    return Triplet(prompt={"token_ids": prompt_ids}, response=response, metadata=facts_of(span))


def facts_of(span: Span) -> dict[str, Any]:
    """What a call's span says of it besides tokens; None where it does not say. Times are seconds since 1970."""
    notes = span.attributes or {}
    return {
        "response_id": notes.get("llm.hosted_vllm.id") or span.span_id,
        "attempt_id": span.attempt_id,
        "weights_version": notes.get(WEIGHTS),
        "started_s": span.start_time,
        "ended_s": span.end_time,
    }


def calls_of(spans: Sequence[Span]) -> list[Triplet]:
    """One triplet per LLM call, in order, whatever the order or number of copies of its span.

    A prompt that begins with the one before it has the same ints, not equal ones: a quarter of the memory.
    """
    calls = [call for span in sorted(spans, key=lambda s: (s.sequence_id, s.start_time)) if (call := call_of(span))]
    calls = list({call.metadata["response_id"]: call for call in reversed(calls)}.values())[::-1]
    for before, prompt in pairwise(call.prompt["token_ids"] for call in calls):
        if prompt[: len(before)] == before:
            prompt[: len(before)] = before
    return calls


def turns_of(triplets: Sequence[Triplet]) -> list[Turn]:
    """The LLM calls of a rollout, in order."""
    return [_turn(t.prompt.get("token_ids") or [], t.response) for t in triplets]


def _turn(prompt: Sequence[int], response: dict[str, Any]) -> Turn:
    sampled = list(response.get("token_ids") or [])
    log_probs = list(response.get(LOG_PROBS) or [NAN] * len(sampled))
    return Turn(list(prompt), sampled, log_probs, response.get("finish_reason") or "")


class ScoredTriplets(LlmProxyTraceToTriplet):
    """agent-lightning's proxy adapter, restricted to complete and scored rollouts."""

    def adapt(self, source: Sequence[Span], /) -> list[Triplet]:
        """Triplets of one attempt in call order, the last one carrying the reward (None while it awaits its group); []
        when it must not be learned from.

        `prompt["token_ids"]` and `response["token_ids"]` are lists of ints as vLLM saw and sampled them;
        `response["log_probs"]`, where the proxy asked for them, one number per token of the response.
        """
        reward = reward_of(source)
        if reward is None and annotation_of(source, UNSCORED_KEY) != AWAITS_GROUP:
            return []
        triplets = calls_of(source)
        expected = annotation_of(source, LLM_CALLS_KEY)
        if not triplets or (expected is not None and len(triplets) != int(expected)):
            logger.warning("rollout left out: %d LLM calls, %d with token ids", expected or 0, len(triplets))
            return []
        return [t.model_copy(update={"reward": None}) for t in triplets[:-1]] + [
            triplets[-1].model_copy(update={"reward": reward})
        ]
