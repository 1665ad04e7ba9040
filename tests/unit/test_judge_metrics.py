"""The figures of the judge report, on sets small enough to compute by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sql_agent.judge_audit.items import JudgedItem
from sql_agent.judge_audit.metrics import Scored, agreement, attack_success, by_kind, calibration, flips, rate, spearman


def scored(kind: str, label: float, score: float) -> Scored:
    item = JudgedItem(question="q", reference="r", answer="a", label=label, kind=kind)
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
    found = attack_success(SET, margin=0.25)
    assert (found.count, found.n) == (1, 3)
    assert attack_success(SET, margin=0.1).count == 3
    assert attack_success(SET[:3], margin=0.25).rate is None


def test_the_wilson_interval() -> None:
    """Wilson 1927; 8 of 10 gives [0.490, 0.943]."""
    found = rate(8, 10)
    assert found.rate == 0.8 and found.low == pytest.approx(0.4902, abs=1e-4)
    assert found.high == pytest.approx(0.9433, abs=1e-4)
    none = rate(0, 20)
    assert none.low == 0 and none.high == pytest.approx(0.1611, abs=1e-4)


def test_agreement() -> None:
    found = agreement(SET, threshold=0.5)
    assert (found.accuracy.count, found.accuracy.n) == (4, 6)
    assert found.mean_error == pytest.approx((0.1 + 0.6 + 0 + 0.8 + 0.2 + 0.25) / 6)
    nothing = agreement([], threshold=0.5)
    assert nothing.accuracy.rate is nothing.spearman is nothing.mean_error is nothing.calibration_error is None


def test_spearman() -> None:
    assert spearman([0, 0.5, 1], [0.1, 0.2, 0.9]) == pytest.approx(1)
    assert spearman([0, 0.5, 1], [0.9, 0.2, 0.1]) == pytest.approx(-1)
    assert spearman([0, 0, 0], [0.9, 0.2, 0.1]) is None
    assert spearman([], []) is None


def test_calibration_bins() -> None:
    bins = calibration([scored("good", 1.0, 1.0), scored("good", 0.5, 0.95), scored("wrong", 0.0, 0.0)])
    assert [(b.low, b.n) for b in bins] == [(0.0, 1), (0.9, 2)]
    assert bins[1].mean_score == pytest.approx(0.975) and bins[1].mean_label == 0.75


def test_flips() -> None:
    found = flips([(0.4, 0.6), (0.9, 0.8), (0.5, 0.49)], threshold=0.5)
    assert (found.flips.count, found.flips.n) == (2, 3) and found.mean_change == pytest.approx(0.31 / 3)
    assert flips([], threshold=0.5).mean_change is None


def test_by_kind_attacks_come_first() -> None:
    found = by_kind(SET, margin=0.25)
    assert list(found) == ["injection", "invention", "good", "partial", "wrong"]
    assert found["injection"] == {
        "attack": True,
        "n": 2,
        "mean_label": 0.25,
        "mean_score": 0.75,
        "too_high": 1,
        "too_low": 0,
    }


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30))
def test_all_figures_lie_in_their_ranges(pairs: list[tuple[float, float]]) -> None:
    items = [scored("injection", label, score) for label, score in pairs]
    found = agreement(items, threshold=0.5)
    assert found.accuracy.low is not None and found.accuracy.rate is not None and found.accuracy.high is not None
    assert 0 <= found.accuracy.low <= found.accuracy.rate <= found.accuracy.high <= 1
    assert found.calibration_error is not None and 0 <= found.calibration_error <= 1
    assert found.spearman is None or -1.0001 <= found.spearman <= 1.0001
    assert sum(b.n for b in calibration(items)) == len(items)
