"""benchmarks/patches.py: ratios to the neighbouring runs, and the noise between those."""

from __future__ import annotations

from benchmarks.patches import FOR_SPEED, compared, noise_of


def figures(step_s: float, cpu_s: float) -> dict[str, float]:
    return {"step_s": step_s, "cpu_s": cpu_s}


RUNS = [
    ("", figures(2.0, 100.0)),
    ("a", figures(3.0, 120.0)),
    ("", figures(4.0, 100.0)),
    ("b", figures(4.0, 50.0)),
    ("", figures(4.0, 100.0)),
    ("a", figures(8.0, 120.0)),
    ("", figures(4.0, 110.0)),
]


def test_a_run_is_compared_with_those_beside_it() -> None:
    found = compared(RUNS)
    assert found["b"] == {"step_s": 1.0, "cpu_s": 0.5}
    assert found["a"] == {"step_s": 1.5, "cpu_s": 1.171}  # the median of 1.0 and 2.0


def test_noise_is_the_largest_ratio_of_like_runs() -> None:
    assert noise_of(RUNS) == {"step_s": 2.0, "cpu_s": 1.1}


def test_only_patches_for_speed_are_measured() -> None:
    assert {"templates_once", "plain_log_probs"} <= set(FOR_SPEED) and "retries" not in FOR_SPEED
