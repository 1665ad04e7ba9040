"""benchmarks/patches.py: ratios to the neighbouring runs, and the noise between those."""

from __future__ import annotations

from benchmarks.patches import FOR_SPEED, compared, noise_of

RUNS = [("", 2.0), ("a", 3.0), ("", 4.0), ("b", 2.0), ("", 4.0), ("a", 8.0), ("", 4.0)]


def test_a_run_is_compared_with_those_beside_it() -> None:
    assert compared(RUNS) == {"a": 1.5, "b": 0.5}  # a: the median of 1.0 and 2.0


def test_noise_is_the_largest_ratio_of_like_runs() -> None:
    assert noise_of(RUNS) == 2.0


def test_only_patches_for_speed_are_measured() -> None:
    assert {"templates_once", "plain_log_probs"} <= set(FOR_SPEED) and "retries" not in FOR_SPEED
