"""Which questions the steps of a run in one process ask, and what came of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agl_plugin.run.curriculum import CurriculumRules
from agl_plugin.run.question_order import QuestionOrder
from sql_agent.config import DataConfig
from sql_agent.data.dataset import to_row
from sql_agent.local.rollouts import Played, rewards_of
from sql_agent.records import Question


def order_of(
    data: DataConfig,
    questions: Sequence[Question],
    *,
    n: int,
    curriculum: CurriculumRules | None = None,
    resume: str = "",
) -> QuestionOrder:
    """Which `n` questions each step asks, as the checkpoint left it where the run goes on from one."""
    rows, weights = [to_row(question) for question in questions], [file.weight for file in data.train_files]
    order = QuestionOrder(rows, n=n, seed=data.seed, weights=weights, curriculum=curriculum)
    if resume:
        order.load(Path(resume))
    return order


def asked_groups(questions: Sequence[Question], played: Sequence[Played]) -> list[tuple[dict[str, str], list[float]]]:
    """Each question, and the rewards of its scored rollouts; groups were played in the order of the questions."""
    rewards, groups = rewards_of(played), dict.fromkeys(rollout.group for rollout in played)
    return [(to_row(question), rewards.get(group, [])) for question, group in zip(questions, groups, strict=True)]
