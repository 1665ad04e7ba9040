"""Rewards that a GRPO group's rollouts get together: what agl_plugin.run.group_rewards asks for.

Answers judged together (reward.judge.mode), and the term `turn_rank`, which compares their turns.
Guarantees: the same gates, bonus and faults as in scorers.py; an answer that a gate put to 0 in its runner is worse
than all that are judged; what the group's judging cost stands once, with its first judged rollout; what turn_rank pays
adds up to 0 in a group. Pairwise and groupwise rewards compare within the group; their mean says nothing. Validation is
always pointwise, and its turns are not compared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from foundation.rollout_keys import AWAITS_GROUP
from reward_client.groups import grade_group
from reward_client.judge import LLMJudge
from reward_client.schema import GroupScore, JudgeItem, Mode
from sql_agent.config import RewardConfig
from sql_agent.records import RolloutRecord
from sql_agent.scoring.registry import ScoringContext

Change = dict[str, Any]


class GroupGrader:
    """Grades the records of one question's rollouts. Picklable: it travels to the process that trains.

    `agents` has the reward of the run's further agents.
    """

    def __init__(
        self,
        judge: LLMJudge | None,
        mode: Mode,
        reward: RewardConfig | None = None,
        agents: Mapping[str, RewardConfig] | None = None,
    ) -> None:
        self.judge = judge
        self.mode: Mode = mode
        self._rewards = {"": reward or RewardConfig()} | dict(agents or {})

    async def __call__(self, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The changed keys of each record; {} for those that do not wait."""
        rollouts = [RolloutRecord.model_validate(record) for record in records]
        # One question, one agent.
        reward = self._rewards[next((record.agent for record in rollouts if record.agent), "")]
        judged = await self._judged(rollouts, reward)
        now = [record.model_copy(update=change) for record, change in zip(rollouts, judged, strict=True)]
        return [a | b for a, b in zip(judged, by_turns(now, reward), strict=True)]

    async def _judged(self, rollouts: Sequence[RolloutRecord], reward: RewardConfig) -> list[Change]:
        waiting = [record for record in rollouts if record.unscored == AWAITS_GROUP and record.judge_item]
        if not waiting or self.judge is None:
            return [{} for _ in rollouts]
        items = [JudgeItem.model_validate(record.judge_item) for record in waiting]
        judged = waiting[0].awaits.keys() - reward.turn_parts
        others = [r for r in rollouts if r.unscored in ("", AWAITS_GROUP) and r not in waiting]
        worthless = [r for r in others if not any(r.reward_parts.get(part) for part in judged)]
        verdict = await grade_group(
            self.judge, items[0], [item.answer for item in items], mode=self.mode, n_worse=len(worthless)
        )
        usages = [verdict.usage.model_dump(), *({} for _ in waiting[1:])]
        changes = {
            id(record): {**_rewarded(record, score, reward.turn_parts), "judge_usage": usage, "judge_item": None}
            for record, score, usage in zip(waiting, verdict.scores, usages, strict=True)
        }
        return [changes.get(id(record), {}) for record in rollouts]


def grader_of(scoring: ScoringContext) -> GroupGrader:
    mode = scoring.config.judge.mode
    rewards = {name: of_agent.config for name, of_agent in scoring.agents.items()}
    return GroupGrader(scoring.llm if mode != "pointwise" else None, mode, scoring.config, rewards)


def _rewarded(record: RolloutRecord, score: GroupScore, later: Collection[str]) -> Change:
    """What changes with the judge's score; parts of `later` still wait."""
    if score.value is None:
        return {"unscored": score.unscored, "reward_parts": {}, "reason": score.explanation, "awaits": {}}
    now = {part: factor * score.value for part, factor in record.awaits.items() if part not in later}
    waits = {part: factor for part, factor in record.awaits.items() if part in later}
    change = {"reward_parts": record.reward_parts | now} if waits else _finished(record, now)
    return change | {"reason": score.explanation, "awaits": waits}


def _finished(record: RolloutRecord, last_parts: dict[str, float]) -> Change:
    parts = record.reward_parts | last_parts
    return {"unscored": "", "reward": sum(parts.values()), "reward_parts": parts, "awaits": {}}


def by_turns(rollouts: Sequence[RolloutRecord], reward: RewardConfig) -> list[Change]:
    """What changes with the comparison of turns, for the rollouts that wait for nothing else.

    Among those whose answer earned something: (slower - faster) / (their number - 1), in [-1, 1], and 0 in sum; each
    other rollout gets 0.
    """
    waiting = [r for r in rollouts if r.unscored == AWAITS_GROUP and r.awaits and r.awaits.keys() <= reward.turn_parts]
    right = [r for r in waiting if any(r.reward_parts.get(part, 0.0) > 0 for part in reward.answer_parts)]
    changes: dict[int, Change] = {}
    for record in waiting:
        rank = 0.0
        if len(right) > 1 and any(record is other for other in right):
            slower = sum(other.n_turns > record.n_turns for other in right)
            faster = sum(other.n_turns < record.n_turns for other in right)
            rank = (slower - faster) / (len(right) - 1)
        changes[id(record)] = _finished(record, {part: factor * rank for part, factor in record.awaits.items()})
    return [changes.get(id(record), {}) for record in rollouts]
