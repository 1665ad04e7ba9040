"""What the report draws over the steps of a run: rewards, and seconds by phase. Health stands in health.py.

Guarantees: a value that a step lacks is left out, never drawn as 0; long runs are averaged into at most MOST_POINTS
points (MOST_BARS bars). Not covered: how the numbers came about (docs/05-how-it-works.md).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from foundation.stats import Estimate, estimate
from sql_agent.run_report.folder import RunData
from sql_agent.run_report.plain import Tree

MOST_POINTS, MOST_BARS = 160, 60
PARTS = "rollout/reward_parts/"
Unit = Literal["number", "percent", "count"]

# The parts of a step's time, which have the metrics time/NAME (agl_plugin.run.time_split): how each is called, and the
# number of its colour, the same in every run; what is no work is grey.
PHASES = {
    "generation": ("generation", 0),
    "tool": ("tools", 1),
    "judge": ("judge", 2),
    "old_log_prob": ("old log-probs", 3),
    "reference": ("reference model", 4),
    "update": ("update", 5),
    "weight_sync": ("weight sync", 6),
    "store_adapter": ("store and adapter", 8),
    "idle": ("idle", 7),
}
REST = "everything else"
PHASE_COLOR = {**dict(PHASES.values()), REST: 9}


@dataclass(frozen=True)
class Series:
    name: str
    title: str
    about: str
    unit: Unit
    steps: list[int]
    values: list[float]
    limit: float | None = None
    above_is_bad: bool = True

    @property
    def is_beyond(self) -> bool:
        """True where the last value lies on the bad side of the limit."""
        last = self.values[-1]
        return self.limit is not None and (last > self.limit if self.above_is_bad else last < self.limit)

    @property
    def range(self) -> str:
        return f"{self.shown(min(self.values))} to {self.shown(max(self.values))}"

    def shown(self, value: float) -> str:
        """A value as people read it, with its unit, four digits at most."""
        if self.unit == "percent":
            return f"{100 * value:.1f}\N{NO-BREAK SPACE}%"
        return f"{value:.0f}" if self.unit == "count" else f"{value:.4g}"


def bins(rows: list[Tree], most: int = MOST_POINTS) -> list[list[Tree]]:
    """The rows in order, in at most `most` groups of neighbours of the same size; the last may be smaller."""
    size = -(-len(rows) // most) or 1
    return [rows[i : i + size] for i in range(0, len(rows), size)]


def per(run: RunData) -> str:
    """What a point of a curve is: a step's value, or the mean of so many where there are more than MOST_POINTS."""
    size = len(bins(run.rows("train"))[0]) if run.rows("train") else 1
    return " per step" if size == 1 else f", mean of {size} steps"


def step_of(group: list[Tree]) -> int:
    return int(group[-1]["step"])


def mean_of(group: list[Tree], metric: str) -> float | None:
    values = [row[metric] for row in group if metric in row]
    return fmean(values) if values else None


def over_steps(rows: list[Tree], metric: str) -> tuple[list[int], list[float]]:
    points = [(step_of(group), v) for group in bins(rows) if (v := mean_of(group, metric)) is not None]
    return [step for step, _ in points], [v for _, v in points]


def reward_parts(run: RunData) -> list[Series]:
    """The first eight parts; each metric is one of the rows', so none is without points."""
    rows = run.rows("train")
    metrics = list(dict.fromkeys(key for row in rows for key in row if key.startswith(PARTS)))[:8]
    names = [metric.removeprefix(PARTS) for metric in metrics]
    return [Series(name, name, "", "number", *over_steps(rows, PARTS + name)) for name in names]


def training_reward(run: RunData) -> Series:
    points = over_steps(run.rows("train"), "rollout/reward_mean")
    return Series("reward", "training", "", "number", *points)


def phase_seconds(run: RunData) -> tuple[list[int], dict[str, list[float]]]:
    """Steps, and the seconds of each phase by its title; REST is what no phase accounts for."""
    groups = bins(run.rows("train"), MOST_BARS)
    seconds: dict[str, list[float]] = {
        title: [max(0.0, mean_of(group, f"time/{name}") or 0.0) for group in groups]
        for name, (title, _) in PHASES.items()
    }
    known = [sum(values) for values in zip(*seconds.values(), strict=True)]
    whole = [mean_of(group, "seconds") or 0.0 for group in groups]
    seconds[REST] = [max(0.0, total - part) for total, part in zip(whole, known, strict=True)]
    used = {title: values for title, values in seconds.items() if any(values)}
    return [step_of(group) for group in groups], used


def validations(run: RunData, agent: str | None = None) -> list[tuple[int, Estimate]]:
    """The held-out reward at each validated step, with its interval over questions; nan without the rollouts.

    `agent`: of that agent's questions alone, "" being those that name none.
    """
    by_step: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for entry in run.rollouts:
        if entry.side == "val" and entry.reward is not None and agent in (None, entry.agent):
            by_step[entry.step][entry.question_id].append(entry.reward)
    estimates = {step: estimate(fmean(values) for values in rewards.values()) for step, rewards in by_step.items()}
    for row in run.rows("val"):
        if agent is None and "val/reward_mean" in row and row["step"] not in estimates:
            estimates[int(row["step"])] = Estimate(row["val/reward_mean"], float("nan"), float("nan"), 0)
    return sorted(estimates.items())


def reason_counts(run: RunData, prefix: str) -> dict[str, int]:
    """How often each reason below a metric's prefix occurred in training, most frequent first."""
    counts: Counter[str] = Counter()
    for row in run.rows("train"):
        for key, value in row.items():
            if key.startswith(prefix):
                counts[key.removeprefix(prefix)] += int(value)
    return dict(counts.most_common(12))
