"""Intervals, paired differences, permutation p-values, best and worst of k: properties and known values."""

from __future__ import annotations

import itertools
import math
import random
from statistics import fmean

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foundation.stats import Quantiles, best_of, difference, estimate, quantiles, sign_flip_p, worst_of

NUMBERS = st.floats(-100, 100, allow_nan=False, width=32)
SOME = st.lists(NUMBERS, min_size=1, max_size=12)


@settings(deadline=None)
@given(SOME)
def test_the_interval_lies_around_the_mean_and_within_the_values(values: list[float]) -> None:
    found = estimate(values)
    slack = 1e-9
    assert min(values) - slack <= found.low <= found.mean + slack and found.mean <= found.high + slack
    assert found.high <= max(values) + slack and found.n == len(values)


@settings(deadline=None, max_examples=30)
@given(SOME, st.floats(-5, 5), st.floats(0.1, 5))
def test_the_interval_moves_and_stretches_with_the_values(values: list[float], shift: float, scale: float) -> None:
    found, moved = estimate(values), estimate([scale * value + shift for value in values])
    expected = [scale * x + shift for x in (found.mean, found.low, found.high)]
    assert [moved.mean, moved.low, moved.high] == pytest.approx(expected, abs=1e-6)


def test_the_interval_covers_the_true_mean_about_95_times_of_100() -> None:
    rng = random.Random(1)
    found = [estimate([rng.random() for _ in range(60)]) for _ in range(200)]
    assert 0.88 <= fmean(one.low <= 0.5 <= one.high for one in found) <= 0.99


def test_the_interval_is_reproducible_and_shrinks_with_n() -> None:
    values = [random.Random(2).random() for _ in range(400)] + [0.0, 1.0]
    assert estimate(values) == estimate(values)
    few, many = estimate([0.0, 1.0] * 5), estimate([0.0, 1.0] * 500)
    assert many.high - many.low < (few.high - few.low) / 5
    assert str(estimate([])) == estimate([]).brief() == "-"


@settings(deadline=None, max_examples=25)
@given(st.lists(NUMBERS, min_size=1, max_size=8))
def test_the_p_value_does_not_know_which_model_is_which(differences: list[float]) -> None:
    p = sign_flip_p(differences)
    assert 0 < p <= 1 and p == pytest.approx(sign_flip_p([-value for value in differences]))


def test_nor_where_flips_are_drawn() -> None:
    differences = [random.Random(5).gauss(0.2, 1) for _ in range(30)]
    assert sign_flip_p(differences) == sign_flip_p([-value for value in differences])


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(-20, 20), min_size=1, max_size=8))
def test_few_questions_give_the_exact_p_value(differences: list[int]) -> None:
    flips = list(itertools.product((1, -1), repeat=len(differences)))
    sums = [sum(sign * value for sign, value in zip(flip, differences, strict=True)) for flip in flips]
    above = sum(value >= sum(differences) for value in sums) / len(flips)
    below = sum(value <= sum(differences) for value in sums) / len(flips)
    assert sign_flip_p(differences) == pytest.approx(min(1.0, 2 * min(above, below)))


def test_p_is_small_for_a_real_difference_and_even_for_none() -> None:
    rng = random.Random(4)
    assert sign_flip_p([rng.gauss(0.5, 1) for _ in range(100)]) < 0.001
    none = [sign_flip_p([rng.gauss(0, 1) for _ in range(8)]) for _ in range(200)]
    assert 0.02 <= fmean(p < 0.1 for p in none) <= 0.18


def test_a_difference_is_paired() -> None:
    rng = random.Random(3)
    before = {f"q{i}": rng.random() for i in range(80)} | {"only before": 9.0}
    after = {key: value + 0.05 for key, value in before.items() if key != "only before"} | {"only after": -9.0}
    found = difference(before, after, test=True)
    assert found.n == 80 and [found.low, found.mean, found.high] == pytest.approx([0.05] * 3)
    assert found.p is not None and found.p < 0.001 and str(found).startswith("+0.050")
    apart = estimate(before.values())
    assert apart.high - apart.low > 0.1, "unpaired, the difference would drown"
    assert difference({}, after, test=True).p is None


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=7), st.data())
def test_best_and_worst_of_k_are_the_means_over_all_draws(values: list[int], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(values)))
    draws = list(itertools.combinations(values, k))
    assert best_of(values, k) == pytest.approx(fmean(max(draw) for draw in draws))
    assert worst_of(values, k) == pytest.approx(fmean(min(draw) for draw in draws))


@given(st.lists(st.booleans(), min_size=1, max_size=20), st.data())
def test_best_of_k_is_pass_at_k_for_right_and_wrong(right: list[bool], data: st.DataObject) -> None:
    k, n, c = data.draw(st.integers(1, len(right))), len(right), sum(right)
    assert best_of([float(r) for r in right], k) == pytest.approx(1 - math.comb(n - c, k) / math.comb(n, k))


@given(st.lists(NUMBERS, min_size=2, max_size=9))
def test_more_samples_never_make_the_best_worse(values: list[float]) -> None:
    assume(len(set(values)) > 1)
    best = [best_of(values, k) for k in range(1, len(values) + 1)]
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(best))
    assert best[0] == pytest.approx(fmean(values), abs=1e-6) and best[-1] == pytest.approx(max(values))


@pytest.mark.parametrize("k", [0, 3])
def test_k_lies_within_the_samples(k: int) -> None:
    with pytest.raises(ValueError, match=f"k = {k}"):
        best_of([1.0, 2.0], k)


def test_quantiles() -> None:
    assert quantiles([float(i) for i in range(101)]) == Quantiles(50.0, 95.0, 101)
    assert math.isnan(quantiles([]).p50)
