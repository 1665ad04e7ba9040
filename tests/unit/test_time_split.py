"""Each moment of a step has one phase, and the phases add up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl_plugin.run.time_split import OF_ROLLOUTS, PHASES, Stopwatch, length, split, union

TIMES = st.floats(0, 20, allow_nan=False, width=32)
INTERVALS = st.lists(st.tuples(TIMES, TIMES).map(lambda pair: (min(pair), max(pair))), max_size=8)


def naive(
    by_kind: dict[str, list[tuple[float, float]]], order: tuple[str, ...], within: tuple[float, float]
) -> dict[str, float]:
    """The same by looking at each piece between two borders."""
    borders = sorted({*within, *(t for spans in by_kind.values() for span in spans for t in span)})
    borders = [t for t in borders if within[0] <= t <= within[1]]
    found = dict.fromkeys(order, 0.0)
    for start, end in zip(borders, borders[1:], strict=False):
        for kind in order:
            if any(a <= start and end <= b for a, b in by_kind.get(kind, [])):
                found[kind] += end - start
                break
    return found


@given(INTERVALS, INTERVALS, INTERVALS)
def test_every_moment_belongs_to_the_first_kind_that_has_it(a: list, b: list, c: list) -> None:
    by_kind, within = {"generation": a, "tool": b, "judge": c}, (2.0, 15.0)
    found = split(by_kind, order=OF_ROLLOUTS, within=within)
    assert found == pytest.approx(naive(by_kind, OF_ROLLOUTS, within), abs=1e-6)
    assert sum(found.values()) == pytest.approx(length(union([*a, *b, *c], within=within)), abs=1e-6)


def test_the_phases_of_a_step_add_up_to_its_seconds() -> None:
    watch = Stopwatch()
    watch.add("weight_sync", 100.0, 100.5)
    watch.add("rollouts", 100.5, 110.0)
    watch.add("generation", 101.0, 106.0)
    watch.add("generation", 105.0, 108.0)
    watch.add("tool", 106.0, 108.5)
    watch.add("judge", 108.0, 109.0)
    watch.add("idle", 104.0, 109.4)
    phases = watch.phases({"old_log_prob": 1.0, "update_actor": 2.0, "gen": 10.0}, seconds=14.0)
    assert set(phases) == set(PHASES)
    assert phases["generation"] == pytest.approx(7.0) and phases["tool"] == pytest.approx(0.5)
    assert phases["judge"] == pytest.approx(0.5) and phases["idle"] == pytest.approx(0.4)
    assert phases["store_adapter"] == pytest.approx(1.1) and phases["other"] == pytest.approx(1.0)
    assert sum(phases.values()) == pytest.approx(14.0)
    watch.add("weight_sync", 109.5, 110.2)  # the engines go to sleep before the rollouts' time ends
    phases = watch.phases({"old_log_prob": 1.0, "update_actor": 2.0}, seconds=14.0)
    assert phases["weight_sync"] == pytest.approx(1.2) and phases["other"] == pytest.approx(0.8)
    watch.clear()
    assert watch.phases({}, seconds=1.0)["other"] == 1.0


def test_what_is_measured_is_noted_when_it_fails_too() -> None:
    watch = Stopwatch()
    with pytest.raises(ValueError, match="no"), watch.measure("judge"):
        raise ValueError("no")
    assert len(watch.intervals["judge"]) == 1
