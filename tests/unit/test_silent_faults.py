"""What a run would survive silently is said before it: groups of one, validation on training questions."""

from __future__ import annotations

from sql_agent.config import build_config
from sql_agent.records import Question
from sql_agent.training.questions import silent_faults

ROWS = [Question(id=str(n), question=f"第{n}问") for n in range(6)]


def told(group_size: int, val: list[Question], **settings: object) -> list[str]:
    config = build_config({"rollout": {"group_size": group_size}}, settings)
    return list(silent_faults(config.rollout, config.optim, config.trainer, train=ROWS[:4], val=val))


def test_a_cut_distribution_is_told_unless_it_is_weighed() -> None:
    (cut,) = told(4, ROWS[4:], rollout={"top_p": 0.9})
    assert "rollout.top_p = 0.9 and rollout.top_k = 0 cut what training samples from" in cut
    assert told(4, ROWS[4:], rollout={"top_p": 0.9}, optim={"importance_correction": "truncated"}) == []


def test_a_sound_run_is_told_nothing() -> None:
    assert told(4, ROWS[4:]) == []


def test_groups_of_one_and_shared_questions_are_told() -> None:
    (alone,) = told(1, ROWS[4:])
    (shared,) = told(4, ROWS[3:])
    assert "rollout.group_size = 1" in alone and shared.startswith("1 of 3 questions of data.val_file")
