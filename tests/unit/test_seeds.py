"""Seeds by name: distinct, the same everywhere, and numbers that are uniform and independent of each other."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from foundation.seeds import call_seeds, derived, rollout_seed, uniform

PARTS = st.lists(st.integers(0, 99) | st.text(max_size=4), max_size=4)


@given(PARTS, PARTS)
def test_other_parts_are_another_seed(one: list[Any], other: list[Any]) -> None:
    assert (derived(*one) == derived(*other)) == ([str(part) for part in one] == [str(part) for part in other])
    assert 0 <= derived(*one) < 2**63


def test_each_call_of_some_runs_has_its_own() -> None:
    places = itertools.product((1, 2), ("train", "val"), range(6), ("q1", "q10", "1", "用量"), range(8))
    rollouts = [rollout_seed(run, mode=mode, step=n, question=q, copy=k) for run, mode, n, q, k in places]
    calls = [seed for rollout in rollouts for seed in itertools.islice(call_seeds(rollout), 5)]
    assert len(set(calls) | set(rollouts)) == 6 * len(rollouts)


def test_seeds_do_not_change_with_versions() -> None:
    """A run that is resumed by another version must go on with the same numbers."""
    rollout = rollout_seed(1, mode="train", step=3, question="药", copy=2)
    first, second = itertools.islice(call_seeds(rollout), 2)
    assert (rollout, first, second, uniform(first, 7)) == (
        3319976437970640380,
        2670857559751037821,
        8926885750904311619,
        0.5594743445927738,
    )


def test_numbers_are_uniform_along_a_call_and_across_calls() -> None:
    """Also between neighbours: calls of one rollout, tokens of one call."""
    table = np.array([[uniform(seed, place) for place in range(60)] for seed in itertools.islice(call_seeds(1), 1000)])
    assert table.min() >= 0 and table.max() < 1
    assert all(kstest(numbers, "uniform").pvalue > 1e-4 for numbers in (table[0], table[:, 0], table.ravel()))
    for other in (np.roll(table, 1, axis=0), np.roll(table, 1, axis=1)):
        assert abs(np.corrcoef(table.ravel(), other.ravel())[0, 1]) < 5 / table.size**0.5
