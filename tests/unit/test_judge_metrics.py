"""The figures of the judge report, on sets small enough to compute by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sql_agent.judge_audit.items import JudgedItem
from sql_agent.judge_audit.metrics import (
    Scored,
    bootstrap,
    calibration,
    calibration_error,
    flips,
    mean,
    rate,
    spearman,
    summaries,
    summary,
)


def scored(kind: str, label: float, score: float, **more: Any) -> Scored:
    item = JudgedItem.model_validate(
        {"question": "q", "reference": "r", "answer": "a", "label": label, "kind": kind, **more}
    )
    return Scored(item, score)


SET = [
    scored("good", 1.0, 0.9),
    scored("wrong", 0.0, 0.6),
    scored("partial", 0.5, 0.5),
    scored("injection", 0.0, 0.8),
    scored("injection", 0.5, 0.7),
    scored("invention", 0.0, 0.25),
]


def test_attack_success_counts_attacks_that_earn_clearly_more_than_their_label() -> None:
    found = summary(SET, threshold=0.5, margin=0.25).attack_success
    assert (found.count, found.n) == (1, 3)
    assert summary(SET, threshold=0.5, margin=0.1).attack_success.count == 3
    assert summary(SET[:3], threshold=0.5, margin=0.25).attack_success.rate is None


def test_refused_are_right_honest_answers_below_the_threshold() -> None:
    found = summary([*SET, scored("good", 0.5, 0.4), scored("good", 0.4, 0.1)], threshold=0.5, margin=0.25).refused
    assert (found.count, found.n) == (1, 3)


def test_order_is_over_pairs_of_one_question_with_different_labels() -> None:
    other = [scored("good", 1.0, 0.1, question="other"), scored("wrong", 0.0, 0.2, question="other")]
    alone = scored("good", 1.0, 0.0, question="alone")
    found = summary(
        [scored("good", 1, 0.5), scored("good", 1, 0.9), scored("wrong", 0, 0.5), *other, alone],
        threshold=0.5,
        margin=0,
    )
    # of the first question one pair is right, one a tie; of the second its pair is wrong
    assert found.n_pairs == 3 and found.order.value == pytest.approx(1 / 3)
    assert found.order.low == 0 and found.order.high == 0.5
    assert summary([alone], threshold=0.5, margin=0).order.value is None


def test_the_wilson_interval() -> None:
    """Wilson 1927; 8 of 10 gives [0.490, 0.943]."""
    found = rate(8, 10)
    assert found.rate == 0.8 and found.low == pytest.approx(0.4902, abs=1e-4)
    assert found.high == pytest.approx(0.9433, abs=1e-4)
    none = rate(0, 20)
    assert none.low == 0 and none.high == pytest.approx(0.1611, abs=1e-4)


def test_accuracy_and_error() -> None:
    found = summary(SET, threshold=0.5, margin=0.25)
    assert (found.accuracy.count, found.accuracy.n, found.n_attacks) == (4, 6, 3)
    assert found.mean_error == pytest.approx((0.1 + 0.6 + 0 + 0.8 + 0.2 + 0.25) / 6)
    nothing = summary([], threshold=0.5, margin=0.25)
    assert nothing.accuracy.rate is nothing.spearman.value is nothing.mean_error is calibration_error([]) is None


@pytest.mark.parametrize(("scores", "expected"), [([0.1, 0.2, 0.9], 1), ([0.9, 0.2, 0.1], -1), ([0.5] * 3, None)])
def test_spearman(scores: list[float], expected: float | None) -> None:
    found = spearman([scored("good", label, score) for label, score in zip([0, 0.5, 1], scores, strict=True)])
    assert found == (expected and pytest.approx(expected))
    assert spearman([]) is None


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40))
def test_a_bootstrap_interval_is_seeded_and_holds_only_what_was_seen(values: list[float]) -> None:
    found = bootstrap(values, mean)
    assert found == bootstrap(values, mean) and found.low is not None and found.high is not None
    assert min(values) - 1e-9 <= found.low <= found.high <= max(values) + 1e-9
    assert bootstrap(values[:1], mean).low is None


def test_an_item_may_say_itself_whether_it_is_an_attack() -> None:
    assert scored("quote", 1, 1, attack=False).item.is_attack is False
    assert scored("good", 1, 1, attack=True).item.is_attack and scored("quote", 1, 1).item.is_attack


def test_calibration_bins() -> None:
    bins = calibration([scored("good", 1.0, 1.0), scored("good", 0.5, 0.95), scored("wrong", 0.0, 0.0)])
    assert [(b.low, b.n) for b in bins] == [(0.0, 1), (0.9, 2)]
    assert bins[1].mean_score == pytest.approx(0.975) and bins[1].mean_label == 0.75


def test_flips() -> None:
    found = flips([(0.4, 0.6), (0.9, 0.8), (0.5, 0.49)], threshold=0.5)
    assert (found.flips.count, found.flips.n) == (2, 3) and found.mean_change == pytest.approx(0.31 / 3)
    assert flips([], threshold=0.5).mean_change is None


def test_kinds_and_task_types_have_the_same_figures_and_attacks_come_first() -> None:
    found = summaries(SET, lambda s: s.item.kind, threshold=0.5, margin=0.25)
    assert list(found) == ["injection", "invention", "good", "partial", "wrong"]
    assert (found["injection"].n, found["injection"].mean_label, found["injection"].mean_score) == (2, 0.25, 0.75)
    assert found["injection"].attack_success.count == 1 and found["good"].refused.n == 1
    typed = [scored("good", 1, 1, task_type=name) for name in ("b", "a")]
    assert list(summaries(typed, lambda s: s.item.task_type, threshold=0.5, margin=0.25)) == ["a", "b"]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30))
def test_all_figures_lie_in_their_ranges(pairs: list[tuple[float, float]]) -> None:
    items = [scored("injection", label, score) for label, score in pairs]
    found, error = summary(items, threshold=0.5, margin=0.25), calibration_error(items)
    assert found.accuracy.low is not None and found.accuracy.rate is not None and found.accuracy.high is not None
    assert 0 <= found.accuracy.low <= found.accuracy.rate <= found.accuracy.high <= 1
    assert error is not None and 0 <= error <= 1
    assert found.spearman.value is None or -1.0001 <= found.spearman.value <= 1.0001
    assert sum(b.n for b in calibration(items)) == len(items)
