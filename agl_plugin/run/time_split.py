"""Where the seconds of a training step go: one phase for each moment of it.

Rollouts run side by side, so the time that they share is split by what goes on anywhere: a moment in which some LLM
call is in flight is generation, else one with a running tool is tool, else judge; what remains is idle where the
trainer only waited for its next look at the store, and store_adapter where rollouts were written, fetched or made into
rows.
Guarantees: the phases of a step add up to its seconds. Clocks of runners on other machines must agree with the
trainer's; what lies outside the step is left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from typing import Any

# In the order of pictures and tables; the first three come from rollouts, in this order of precedence.
PHASES = {
    "generation": "LLM calls in flight",
    "tool": "a tool running, no LLM call",
    "judge": "only judging",
    "old_log_prob": "log-probabilities of the sampled tokens",
    "reference": "log-probabilities of the start model",
    "update": "backward passes and optimizer",
    "weight_sync": "weights to vLLM",
    "store_adapter": "queueing, fetching, making rows",
    "idle": "waiting for the next look at the store",
    "other": "everything else",
}
OF_ROLLOUTS = ("generation", "tool", "judge")
VERL_TIMERS = {"old_log_prob": "old_log_prob", "reference": "ref", "update": "update_actor"}
Interval = tuple[float, float]


def union(intervals: Iterable[Interval], *, within: Interval) -> list[Interval]:
    """The intervals (start, end) cut to `within`, merged where they touch, in order."""
    merged: list[Interval] = []
    for start, end in sorted((max(a, within[0]), min(b, within[1])) for a, b in intervals):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def length(intervals: Iterable[Interval]) -> float:
    """Seconds of intervals that do not overlap."""
    return sum(end - start for start, end in intervals)


def split(by_kind: dict[str, list[Interval]], *, order: tuple[str, ...], within: Interval) -> dict[str, float]:
    """Seconds of `within` per kind; where kinds overlap, the earlier one in `order` has the moment."""
    taken: list[Interval] = []
    seconds: dict[str, float] = {}
    for kind in order:
        before = length(taken)
        taken = union([*taken, *by_kind.get(kind, [])], within=within)
        seconds[kind] = length(taken) - before
    return seconds


class Stopwatch:
    """Collects what a training step spends; seconds since the epoch, so that runners' notes fit in."""

    def __init__(self) -> None:
        self.intervals: dict[str, list[Interval]] = {}

    def clear(self) -> None:
        self.intervals = {}

    @contextmanager
    def measure(self, kind: str) -> Any:
        start = time.time()
        try:
            yield
        finally:
            self.add(kind, start, time.time())

    def add(self, kind: str, start: float, end: float) -> None:
        self.intervals.setdefault(kind, []).append((start, end))

    def played(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """What rollouts spent, by their records."""
        for row in rows:
            for kind, start, end in row.get("timeline", []):
                self.add(kind, start, end)

    def phases(self, timers: dict[str, float], *, seconds: float) -> dict[str, float]:
        """Seconds per phase of a step that took `seconds`. `timers` are verl's (`timing_s/...` without the prefix).

        `weight_sync` and `idle` come from `measure`; the rollouts' window is `rollouts`.
        """
        spent = {phase: timers.get(timer, 0.0) for phase, timer in VERL_TIMERS.items()}
        spent["weight_sync"] = length(self.intervals.get("weight_sync", []))
        windows = self.intervals.get("rollouts", [])
        for window in windows:
            parts = split(self.intervals, order=("weight_sync", *OF_ROLLOUTS, "idle"), within=window)
            uncovered_s = window[1] - window[0] - sum(parts.values())
            for kind in (*OF_ROLLOUTS, "idle"):  # weight_sync has its moments already
                spent[kind] = spent.get(kind, 0.0) + parts[kind]
            spent["store_adapter"] = spent.get("store_adapter", 0.0) + uncovered_s
        spent["other"] = max(0.0, seconds - sum(spent.values()))
        return {phase: round(spent.get(phase, 0.0), 4) for phase in PHASES}
