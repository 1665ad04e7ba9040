"""Rewards for a GRPO group whose answers are judged together: what agl_plugin.run.group_rewards asks for.

Guarantees: the same gates, bonus and faults as in scorers.py; an answer that a gate put to 0 in its runner is worse
than all that are judged; what the group's judging cost stands once, with its first judged rollout.
Pairwise and groupwise rewards compare within the group; their mean says nothing. Validation is always pointwise.
"""

from __future__ import annotations

from typing import Any

from foundation.rollout_keys import AWAITS_GROUP
from reward_client.groups import grade_group
from reward_client.judge import LLMJudge
from reward_client.schema import GroupScore, JudgeItem, Mode
from sql_agent.records import RolloutRecord


class GroupGrader:
    """Grades the records of one question's rollouts. Picklable: it travels to the process that trains."""

    def __init__(self, judge: LLMJudge, mode: Mode) -> None:
        self.judge = judge
        self.mode: Mode = mode

    async def __call__(self, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The changed keys of each record; {} for those that do not wait."""
        found = [RolloutRecord.model_validate(record) for record in records]
        waiting = [record for record in found if record.unscored == AWAITS_GROUP]
        items = [JudgeItem.model_validate(record.judge_item) for record in waiting]
        judged = waiting[0].awaits
        worthless = [r for r in found if not r.unscored and not any(r.reward_parts.get(part) for part in judged)]
        verdict = await grade_group(
            self.judge, items[0], [item.answer for item in items], mode=self.mode, n_worse=len(worthless)
        )
        usages = [verdict.usage.model_dump(), *({} for _ in waiting[1:])]
        changes = {
            id(record): {**_rewarded(record, score), "judge_usage": usage, "judge_item": None, "awaits": {}}
            for record, score, usage in zip(waiting, verdict.scores, usages, strict=True)
        }
        return [changes.get(id(record), {}) for record in found]


def _rewarded(record: RolloutRecord, score: GroupScore) -> dict[str, Any]:
    if score.value is None:
        return {"unscored": score.unscored, "reward_parts": {}, "reason": score.explanation}
    value = score.value
    parts = {**record.reward_parts, **{part: factor * value for part, factor in record.awaits.items()}}
    return {"unscored": "", "reward": sum(parts.values()), "reward_parts": parts, "reason": score.explanation}
