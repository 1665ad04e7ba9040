"""Which questions stand in for flat groups, and which groups make up the batch."""

from __future__ import annotations

from typing import Any

from agl_plugin.run.question_order import QuestionOrder
from agl_plugin.run.resampling import Places, SpareQuestions, is_flat, key_of, teaches

DATASET = [{"id": f"q{i}", "question": f"第{i}问"} for i in range(20)]


def ids(questions: list[dict[str, Any]]) -> list[str]:
    return [question["id"] for question in questions]


def test_seed_and_step_decide_what_is_drawn() -> None:
    one, same, other = (QuestionOrder(DATASET, n=2, seed=1).spare(step) for step in (4, 4, 5))
    drawn = ids(one.draw(6, used=set()))
    assert drawn == ids(same.draw(6, used=set())) != ids(other.draw(6, used=set())) and len(set(drawn)) == 6


def test_no_question_is_drawn_twice_in_a_step_or_is_one_of_its_own() -> None:
    spare, own = SpareQuestions(DATASET, range(20)), {"q3", "q7"}
    drawn = [*ids(spare.draw(5, used=own)), *ids(spare.draw(0, used=own)), *ids(spare.draw(5, used=own))]
    assert len(set(drawn)) == 10 and not own & set(drawn)
    assert len(spare.draw(99, used=own)) == 8 and spare.draw(1, used=own) == []


def test_rows_without_an_id_are_told_apart_by_what_they_hold() -> None:
    assert (
        key_of({"question": "a", "data_id": "x"}) == key_of({"question": "a", "index": 0}) != key_of({"question": "b"})
    )


def test_only_scored_groups_without_variance_are_flat() -> None:
    places = Places(["flat", "varied", "alone", "unscored"])
    groups = {"flat": [0.5, 0.5], "varied": [0.5, 0.6], "alone": [0.5]}
    assert places.flat(groups) == ["flat"]


def test_a_substitute_takes_the_place_only_if_it_teaches() -> None:
    places = Places(["a", "b", "c"])
    groups = {name: [0.5, 0.5] for name in ("a", "b", "c")}
    groups |= {"x": [0.1, 0.2], "y": [0.3, 0.3], "z": [0.4]}
    places.fill({"a": "x", "b": "y", "c": "z"}, groups)
    assert places.in_batch == {"x", "b", "c"} and (places.tried, places.replaced) == (3, 1)
    assert places.flat(groups) == ["b", "c"]
    places.fill({"b": "w"}, {**groups, "w": [0.0, 1.0]})
    assert places.in_batch == {"x", "w", "c"} and (places.tried, places.replaced) == (4, 2)


def test_groups_are_flat_as_their_advantages_are() -> None:
    """Advantages take rewards in steps of 2^-16; sums of the same parts may differ by less."""
    assert 0.1 + 0.7 != 0.8 and is_flat([0.1 + 0.7, 0.8]) and not teaches([0.1 + 0.7, 0.8])
    assert teaches([0.8, 0.8 + 2**-16]) and not is_flat([0.8])
