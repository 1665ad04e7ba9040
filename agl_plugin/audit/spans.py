"""What the store holds of a rollout, as the audit's facts take it, and back."""

from __future__ import annotations

from collections.abc import Sequence

from agentlightning.types import Attempt, Rollout, RolloutLegacy, Span, Triplet

from agl_plugin.audit.facts import Call, Seen
from agl_plugin.audit.schema import Row
from agl_plugin.audit.stored import StoredRollout
from agl_plugin.proxy.spans import CALL_SPAN, LOG_PROBS
from agl_plugin.update.adapter import calls_of, facts_of


def seen_rollout(
    rollout: Rollout, attempts: Sequence[Attempt], spans: Sequence[Span], triplets: Sequence[Triplet]
) -> Seen:
    """A rollout with all calls of its latest attempt; `triplets` are those with token ids, where they are known."""
    calls = {call.metadata["response_id"]: _call(call) for call in triplets or calls_of(spans)}
    for span in sorted(spans, key=lambda span: span.sequence_id):
        facts = facts_of(span)
        if span.name == CALL_SPAN and facts["response_id"] not in calls:
            calls[facts["response_id"]] = Call(facts)
    question = rollout.input if isinstance(rollout.input, dict) else {}
    in_order = sorted(calls.values(), key=lambda call: call.facts["started_s"] or 0.0)
    return Seen(rollout.rollout_id, question, [_attempt(attempt) for attempt in attempts], in_order)


def legacy_rollout(stored: StoredRollout) -> RolloutLegacy:
    """A stored rollout as the store's spans give one that was played."""
    scored = stored.reward is not None
    triplets = [_triplet(call) for call in stored.seen.calls] if scored else []
    why = {"unscored": stored.record["unscored"]}
    return RolloutLegacy(rollout_id=stored.seen.rollout_id, final_reward=stored.reward, triplets=triplets, metadata=why)


def _triplet(call: Call) -> Triplet:
    response = {"token_ids": call.sampled, LOG_PROBS: call.log_probs, "finish_reason": call.finish_reason or ""}
    return Triplet(prompt={"token_ids": call.prompt}, response=response, metadata=dict(call.facts))


def _attempt(attempt: Attempt) -> Row:
    return {
        "id": attempt.attempt_id,
        "rollout_id": attempt.rollout_id,
        "n": attempt.sequence_id,
        "status": str(attempt.status),
        "worker": attempt.worker_id,
        "started_s": attempt.start_time,
        "ended_s": attempt.end_time,
    }


def _call(call: Triplet) -> Call:
    prompt, response = call.prompt.get("token_ids") or [], call.response
    sampled, log_probs = response.get("token_ids") or [], response.get(LOG_PROBS) or []
    return Call(call.metadata, prompt, sampled, log_probs, response.get("finish_reason"))
