"""Stored rollouts of a run that the real daemon made: which are learned from, how often, and what the audit says."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agl_plugin.audit.log import AuditLog
from agl_plugin.audit.stored import USE, StoredRun
from agl_plugin.audit.verify import verify
from agl_plugin.run.question_order import QuestionOrder
from agl_plugin.update.rows import Limits
from foundation import run_folder
from foundation.errors import UserError
from foundation.files import read_lines, write_lines
from tests.actor import actor_of, one_rank, tiny_model
from tests.audited import MAX_PROMPT, MAX_TOGETHER, RULES, STEPS, collecting, make_run, settings, update_step
from tests.unit.test_audit import talk
from tests.unit.test_daemon import Play, crashed, faulty

SIZE, N = 3, 2  # rollouts of a group, groups of a step
SEEDS = range(4)


def groups_of(seed: int) -> list[list[Play]]:
    """Five groups of scored rollouts and others, one of which lacks a rollout."""
    draw, turn = random.Random(seed), count(1)

    def played() -> Play:
        n, fate = next(turn) % 8, draw.random()
        calls = [([1, 2], [3, n]), ([1, 2, 3, n, 5], [6])][: draw.choice([1, 2])]
        return talk(draw.choice([0.1, 0.5, 1.0]), *calls) if fate < 0.7 else draw.choice([faulty("no_sql"), crashed])

    groups = [[played() for _ in range(SIZE)] for _ in range(4)]
    return [*groups, [talk(1.0, ([1], [2])), talk(0.0, ([1], [2]))]]


def learn(source: Path, folder: Path, *, uses: int) -> list[set[str]]:
    """A run that learns from all stored rollouts of another as often as it may; the rollouts of each step's rows."""
    folder.mkdir()
    trained: list[set[str]] = []
    with closing(StoredRun(source)) as stored, one_rank(folder.parent):
        told = settings("trajectory", group_size=SIZE) | {"from_store": stored.facts(uses=uses)}
        order = QuestionOrder([group.question for group in stored.groups], n=N, seed=uses)
        with AuditLog(folder, settings=told) as audit, collecting(folder, audit, level="trajectory") as daemon:
            actor = actor_of(tiny_model(vocabulary=16), micro_rows=2, lr=0.1)
            for daemon.step in range(1, uses * (len(stored.groups) // N) + 1):
                daemon.take(stored.rollouts(order.of_step(daemon.step), use=order.use(daemon.step), step=daemon.step))
                update_step(daemon, audit, actor, RULES)
                trained.append({rollout for rollout, _ in daemon.batched.rows} if daemon.batched else set())
    return trained


def source_of(rollout: str) -> str:
    return rollout.rpartition(USE)[0]


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_learned_from_and_how_often(seed: int, tmp_path: Path) -> None:
    uses = 1 + seed % 3
    source = make_run(tmp_path / "source", groups_of(seed), group_size=SIZE)
    played = {row["rollout_id"]: row for row in read_lines(source / run_folder.ROLLOUTS) if row["mode"] == "train"}
    scored = Counter(row["group"] for row in played.values() if not row["unscored"])
    members = Counter(row["group"] for row in played.values())
    whole = {name for name, n in members.items() if n == SIZE and scored[name] > 1}
    trained = learn(source, tmp_path / "learned", uses=uses)
    each = Counter(source_of(rollout) for step in trained for rollout in step)
    taken = read_lines(tmp_path / "learned" / run_folder.ROLLOUTS)
    of_group = Counter((row["step"], row["group"]) for row in taken)
    assert max(each.values()) <= uses and len(trained) == uses * (len(whole) // N)
    assert {played[rollout]["group"] for rollout in each} <= whole
    assert not any(played[rollout]["unscored"] for rollout in each)
    assert set(of_group.values()) == {SIZE} and max(Counter(step for step, _ in of_group).values()) == N
    for row in taken:
        stored = played[source_of(row["rollout_id"])]
        assert row.get("reward") == stored.get("reward") and row["unscored"] == stored["unscored"]
    assert_verified(tmp_path / "learned", source)


def assert_verified(folder: Path, source: Path) -> None:
    checked = verify(folder)
    assert not checked.problems and any(str(source) in note for note in checked.notes)


def test_rows_are_those_of_the_run_that_played_them(tmp_path: Path) -> None:
    source = make_run(tmp_path / "source", [groups_of(0)[-1]])
    with (
        closing(StoredRun(source)) as stored,
        AuditLog(tmp_path, settings=settings("trajectory")) as audit,
        collecting(tmp_path, audit, level="trajectory") as daemon,
    ):
        daemon.step = 1
        daemon.take(stored.rollouts([0], use=1, step=1))
        batch, metrics = daemon.batch(Limits(MAX_PROMPT, MAX_TOGETHER))
    tensors: Any = batch.batch
    assert tensors["responses"].tolist() == [[2], [2]] and tensors["prompts"].tolist() == [[1], [1]]
    assert tensors["rollout_log_probs"].tolist() == [[-0.5], [-0.5]] and metrics["batch/calls_without_log_probs"] == 0
    assert tensors["token_level_scores"].tolist() == [[1.0], [0.0]]


def spoilt(run: Path, problem: str) -> Path:
    if problem == "seal":
        (run / run_folder.AUDIT_SEAL).unlink()
    elif problem == "lines":
        write_lines(run / run_folder.ROLLOUTS, read_lines(run / run_folder.ROLLOUTS)[:2])
    elif problem == "audit":
        (run / run_folder.AUDIT).unlink()
    return run


@pytest.mark.parametrize(
    ("problem", "said"),
    [("seal", "still trains or was killed"), ("lines", "has no line of"), ("audit", "logging.audit = false")],
)
def test_what_cannot_be_learned_from_is_refused(problem: str, said: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [groups_of(0)[-1]])
    with pytest.raises(UserError, match=said):
        StoredRun(spoilt(run, problem))


def test_a_run_without_whole_groups_and_one_that_learned_from_another_are_refused(tmp_path: Path) -> None:
    source = make_run(tmp_path / "source", [groups_of(0)[-1]] * N)
    learn_of: Sequence[set[str]] = []
    with pytest.raises(UserError, match="no group of it can be learned from"):
        StoredRun(make_run(tmp_path / "other", [groups_of(0)[-1]], group_size=SIZE))
    learn_of = learn(source, tmp_path / "learned", uses=1)
    assert len(learn_of) == STEPS
    with pytest.raises(UserError, match=json.dumps(str(source))[1:-1]):
        StoredRun(tmp_path / "learned")
