"""What the store holds of a rollout, as the audit's facts take it."""

from __future__ import annotations

from collections.abc import Sequence

from agentlightning.types import Attempt, Rollout, Span

from agl_plugin.audit.facts import Seen
from agl_plugin.audit.schema import Row
from agl_plugin.proxy.spans import CALL_SPAN
from agl_plugin.update.adapter import facts_of, read_calls
from agl_plugin.update.rows import Call


def seen_rollout(rollout: Rollout, attempts: Sequence[Attempt], spans: Sequence[Span], calls: Sequence[Call]) -> Seen:
    """A rollout with all calls of its latest attempt; `calls` are those with token ids, where they are known."""
    by_id = {call.facts["response_id"]: call for call in calls or read_calls(spans)[0]}
    for span in sorted(spans, key=lambda span: span.sequence_id):
        facts = facts_of(span)
        if span.name == CALL_SPAN:
            by_id.setdefault(facts["response_id"], Call(facts=facts))
    question = rollout.input if isinstance(rollout.input, dict) else {}
    in_order = sorted(by_id.values(), key=lambda call: call.facts["started_s"] or 0.0)
    return Seen(rollout.rollout_id, question, [_attempt(attempt) for attempt in attempts], in_order)


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
