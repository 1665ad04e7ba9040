"""A resumed run sees the questions that it would have seen, with a curriculum and without one."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agl_plugin.run.curriculum import POOLS, CurriculumRules
from agl_plugin.run.question_order import QuestionOrder, order
from foundation.errors import UserError
from foundation.seeds import uniform
from sql_agent.config import build_config
from sql_agent.training.verl_config import curriculum_rules

BATCH = 4
ON: dict[str, Any] = {"on": True, "half_life_steps": 4.0, "rest_steps": 5}


def rules(**more: Any) -> CurriculumRules:
    found = curriculum_rules(build_config({"data": {"curriculum": {**ON, **more}}}).data.curriculum)
    assert found
    return found


def rows_of(n: int) -> list[dict[str, str]]:
    """The first five of each twenty are of a second file."""
    return [{"id": f"q{i}", "question": f"?{i}", "file": str(int(i % 20 < 5))} for i in range(n)]


def order_of(n: int = 20, **more: Any) -> QuestionOrder:
    return QuestionOrder(rows_of(n), n=BATCH, **{"seed": 1, **more})


def steps(found: QuestionOrder, numbers: range) -> list[list[int]]:
    return [found.of_step(step) for step in numbers]


@pytest.mark.parametrize("n", [20, 22])
def test_each_epoch_has_every_question_once_in_an_order_of_its_own(n: int) -> None:
    """What is left over of an epoch is not asked in it: each step is full."""
    places = [sum(steps(order_of(n), range(1 + 5 * epoch, 6 + 5 * epoch)), []) for epoch in range(3)]
    assert places == [order([0] * n, [], seed=1, epoch=epoch)[:20] for epoch in range(3)]
    assert all(len(set(one)) == 20 for one in places) and len(set(map(tuple, places))) == 3


def test_several_files_have_their_shares() -> None:
    whole = steps(order_of(weights=(1.0, 1.0)), range(1, 16))
    assert all(sum(place < 5 for place in batch) == BATCH // 2 for batch in whole)


def test_the_seed_decides_and_too_few_questions_are_no_step() -> None:
    assert steps(order_of(), range(1, 6)) != steps(order_of(seed=2), range(1, 6))
    with pytest.raises(AssertionError, match="3 questions make no step of 4"):
        order_of(3)


HARDNESS = [0.0, 1.0, 0.2, 0.5, 0.8]  # of the question at place n: HARDNESS[n % 5]


def earned(place: int, step: int) -> list[float]:
    """Eight rollouts of a question, as likely solved as it is easy."""
    return [float(uniform(1000 * step + n, place) < HARDNESS[place % 5]) for n in range(8)]


def run(found: QuestionOrder, numbers: range) -> tuple[list[list[int]], list[dict[str, float]]]:
    """Steps with what their questions earn."""
    rows, asked, told = rows_of(40), [], []
    for step in numbers:
        asked.append(found.of_step(step))
        told.append(found.learned(step, [(rows[place], earned(place, step)) for place in asked[-1]]))
    return asked, told


@pytest.mark.parametrize("stop", [1, 7, 30, 99])
def test_a_curriculum_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(stop: int, tmp_path: Path) -> None:
    told: dict[str, Any] = {"n": 40, "curriculum": rules(), "weights": (3.0, 1.0)}
    whole = run(order_of(**told), range(1, 131))
    stopped, resumed = order_of(**told), order_of(**told)
    assert run(stopped, range(1, stop + 1))[0] == whole[0][:stop]
    stopped.save(tmp_path)
    resumed.load(tmp_path)
    again = run(resumed, range(stop + 1, 131))
    assert again == (whole[0][stop:], whole[1][stop:])
    assert json.loads((tmp_path / "curriculum.json").read_text())["known"]


def test_questions_go_to_their_pools_rest_and_come_back() -> None:
    """In steps: rest_steps between two times at least, and the bound of the module at most."""
    asked, told = run(order_of(40, curriculum=rules()), range(1, 401))
    pools = {name: told[-1][f"curriculum/{name}"] for name in POOLS}
    assert pools["new"] == 0 and pools["never"] >= 8 and pools["always"] >= 8 and sum(pools.values()) == 40
    times = Counter(HARDNESS[place % 5] for batch in asked[50:] for place in batch)
    assert min(times[0.2], times[0.5]) > 3 * max(times[0.0], times[1.0])
    for place in (n for n in range(40) if HARDNESS[n % 5] in (0.0, 1.0)):
        when = [step for step, batch in enumerate(asked, start=1) if place in batch]
        gaps = [b - a for a, b in zip(when, [*when[1:], 401], strict=True)]
        assert min(gaps[:-1]) > 5 and max(gaps) <= 5 + 1 + 40 * 4.75 / (0.25 * BATCH)


def test_where_all_rest_those_that_rested_longest_are_asked() -> None:
    found = order_of(8, curriculum=rules(rest_steps=50))
    rows = rows_of(8)
    for step in (1, 2):
        found.learned(step, [(rows[place], [1.0] * 4) for place in found.of_step(step)])
    first, second = (set(found.of_step(step)) for step in (1, 3))
    assert len(first) == BATCH and second == first
    assert found.learned(3, [])["curriculum/resting"] == 8


def test_old_rollouts_count_half_after_a_half_life() -> None:
    found = order_of(curriculum=rules())
    (row, *_) = rows_of(20)
    found.learned(1, [(row, [1.0] * 6)])
    assert found.learned(5, [(row, [0.0, 0.0, 0.49])])["curriculum/middle"] == 1  # 3 of 6
    assert found.curriculum and found.curriculum.known["q0"].solved == 3.0
    assert found.learned(9, [(row, [])])["curriculum/middle"] == 1  # nothing was scored: nothing is learned of it


def test_flat_groups_are_refilled_by_what_is_likeliest_to_teach() -> None:
    found = order_of(5, curriculum=rules(rest_steps=3))
    rows = rows_of(5)
    found.learned(1, [(row, [float(n < 5 * HARDNESS[i]) for n in range(5)]) for i, row in enumerate(rows)])
    assert [row["id"] for row in found.spare(2).draw(9, used=set())] == ["q3", "q2", "q4"]
    assert [row["id"] for row in found.spare(5).draw(9, used={"q3"})][:2] == ["q2", "q4"]


def test_a_probe_forecasts_flat_groups_and_fills_the_pools() -> None:
    found = order_of(20, curriculum=rules(probe=6))
    rows = rows_of(20)
    assert len(set(found.to_probe)) == 6 and order_of().to_probe == []
    told = found.probed([(rows[place], [1.0, float(n > 1), 1.0]) for n, place in enumerate(found.to_probe)])
    assert (told["probe/groups"], told["probe/flat"], told["curriculum/always"]) == (6, 4, 4)
    assert told["curriculum/new"] == 14 and not set(found.to_probe[2:]) & set(found.of_step(1))


def test_what_nothing_reads_is_refused() -> None:
    with pytest.raises(UserError, match=r"rest_steps has nothing to do: set data\.curriculum\.on"):
        build_config({"data": {"curriculum": {"rest_steps": 3}}})
    assert curriculum_rules(build_config({}).data.curriculum) is None
