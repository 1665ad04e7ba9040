"""What the report draws over the steps of a run: rewards, seconds by phase, health. The tables here name all of it.

Guarantees: a value that a step lacks is left out, never drawn as 0; long runs are averaged into at most MOST_POINTS
points (MOST_BARS bars). Not covered: how the numbers came about (docs/05-how-it-works.md).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from sql_agent.eval_stats import Estimate, estimate
from sql_agent.run_report.folder import RunData
from sql_agent.run_report.plain import Tree, number

MOST_POINTS, MOST_BARS = 160, 60
Value = Callable[[Tree], float | None]
Unit = Literal["number", "percent", "tokens"]


@dataclass(frozen=True)
class Phase:
    """A part of a step's time. `key` is its metric; `older` the one of runs that were not split so finely.

    `color` numbers the page's series colours: a phase has the same in every run. What is no work is grey.
    """

    name: str
    title: str
    color: int
    older: str = ""

    @property
    def key(self) -> str:
        return f"time/{self.name}"


PHASES = [
    Phase("generation", "generation", 0, "timing_s/gen"),
    Phase("tool", "SQL tool", 1),
    Phase("judge", "judge", 2),
    Phase("old_log_prob", "old log-probs", 3, "timing_s/old_log_prob"),
    Phase("reference", "reference model", 4, "timing_s/ref"),
    Phase("update", "update", 5, "timing_s/update_actor"),
    Phase("weight_sync", "weight sync", 6),
    Phase("store_adapter", "store and adapter", 8),
    Phase("idle", "idle", 7),
]
REST = Phase("rest", "everything else", 9)
PHASE_COLOR = {phase.title: phase.color for phase in [*PHASES, REST]}


def first(*keys: str) -> Value:
    """The first of these metrics that a step has."""
    return lambda row: next((found for key in keys if (found := number(row.get(key))) is not None), None)


def share(part: Value, whole: Value) -> Value:
    """One metric over another."""

    def value(row: Tree) -> float | None:
        top, bottom = part(row), whole(row)
        return None if top is None or not bottom else top / bottom

    return value


def _unscored(row: Tree) -> float | None:
    rollouts, scored = number(row.get("rollout/rollouts")), number(row.get("rollout/scored"))
    return None if scored is None or not rollouts else 1 - scored / rollouts


@dataclass(frozen=True)
class Measure:
    """One sign of a healthy run."""

    name: str
    title: str
    about: str
    value: Value
    unit: Unit = "number"


# A metric health/<name> with one of these names is what is shown; with another name it gets a panel of its own.
HEALTH = [
    Measure(
        *(
            "entropy",
            "Entropy",
            "Per token. Near 0 the policy always does the same, and learns nothing more.",
        ),
        first("health/entropy", "actor/entropy", "actor/entropy_loss"),
    ),
    Measure(
        *("grad_norm", "Gradient norm", "Before clipping. Spikes come before a collapse."),
        first("health/grad_norm", "actor/grad_norm"),
    ),
    Measure(
        *("clip_share", "Clip share", "Tokens whose update was clipped."),
        first("health/clip_share", "actor/pg_clipfrac"),
        "percent",
    ),
    Measure(
        *("kl", "KL to the start", "How far the policy has moved from the model that it started as."),
        first("health/kl", "actor/kl_loss"),
    ),
    Measure(
        *("update_kl", "KL of one update", "Between the policy that sampled and the one being updated."),
        first("health/update_kl", "actor/ppo_kl"),
    ),
    Measure(
        *("truncation", "Truncation", "Training rows that were cut at the token limit."),
        first("health/truncation", "health/truncation_share"),
        "percent",
    ),
    Measure(
        *("response_tokens", "Answer length", "The policy's own tokens per rollout, mean."),
        first("health/response_tokens", "rollout/response_tokens_mean"),
        "tokens",
    ),
    Measure(
        *("turns", "Turns", "LLM calls per rollout, mean."),
        first("health/turns", "rollout/turns_mean"),
    ),
    Measure(
        *("flat_groups", "Groups without variance", "All rewards of the group equal: no update comes from it."),
        share(first("rollout/zero_variance_groups"), first("rollout/groups")),
        "percent",
    ),
    Measure(
        *("unscored", "Unscored", "Rollouts that a fault left without a reward."),
        _unscored,
        "percent",
    ),
]
ROWS_CUT = share(first("batch/rows_cut"), first("batch/rows"))


@dataclass(frozen=True)
class Series:
    """A measure over the steps."""

    name: str
    title: str
    about: str
    unit: Unit
    steps: list[int]
    values: list[float]

    def shown(self, value: float) -> str:
        """A value as people read it."""
        return shown(value, self.unit)


def shown(value: float, unit: Unit) -> str:
    """A number with its unit, four digits at most."""
    if unit == "percent":
        return f"{100 * value:.1f}\N{NO-BREAK SPACE}%"
    return f"{value:.0f}" if unit == "tokens" else f"{value:.4g}"


def bins(rows: list[Tree], most: int = MOST_POINTS) -> list[list[Tree]]:
    """The rows in order, in at most `most` groups of neighbours of the same size; the last may be smaller."""
    size = -(-len(rows) // most) or 1
    return [rows[i : i + size] for i in range(0, len(rows), size)]


def step_of(group: list[Tree]) -> int:
    """The step that a bin is drawn at: its last."""
    return int(group[-1]["step"])


def mean_of(group: list[Tree], value: Value) -> float | None:
    """The mean over those rows of a bin that have the value."""
    found = [v for row in group if (v := value(row)) is not None]
    return fmean(found) if found else None


def over_steps(rows: list[Tree], value: Value) -> tuple[list[int], list[float]]:
    """Steps and values, without the steps that have none."""
    found = [(step_of(group), v) for group in bins(rows) if (v := mean_of(group, value)) is not None]
    return [step for step, _ in found], [v for _, v in found]


def health(run: RunData) -> list[Series]:
    """All health measures that this run has: those of HEALTH, then each further metric health/<name>."""
    rows = run.rows("train")
    known = {measure.name for measure in HEALTH} | {"truncation_share"}
    others = sorted({key for row in rows for key in row if key.startswith("health/")} - {f"health/{n}" for n in known})
    measures = [
        *(m if m.name != "truncation" else _truncation(rows, m) for m in HEALTH),
        *(Measure(key, _title(key), "", first(key)) for key in others[:12]),
    ]
    drawn = [(m, *over_steps(rows, m.value)) for m in measures]
    return [Series(m.name, m.title, m.about, m.unit, steps, values) for m, steps, values in drawn if steps]


def _truncation(rows: list[Tree], measure: Measure) -> Measure:
    """Runs that have no share of their own counted the rows that were cut."""
    own = any(measure.value(row) is not None for row in rows)
    return measure if own else Measure(measure.name, measure.title, measure.about, ROWS_CUT, measure.unit)


def _title(key: str) -> str:
    name = key.partition("/")[2].replace("_", " ").replace("/", ": ")[:40]
    return name[:1].upper() + name[1:]


def reward_parts(run: RunData) -> dict[str, Series]:
    """Each part of the training reward over the steps."""
    rows = run.rows("train")
    prefix = "rollout/reward_parts/"
    names = list(dict.fromkeys(key.removeprefix(prefix) for row in rows for key in row if key.startswith(prefix)))
    drawn = {name: over_steps(rows, first(prefix + name)) for name in names[:8]}
    return {name: Series(name, name, "", "number", *points) for name, points in drawn.items() if points[0]}


def training_reward(run: RunData) -> Series:
    """The mean reward of the training rollouts, sampled at the training temperature."""
    points = over_steps(run.rows("train"), first("rollout/reward_mean", "training/reward"))
    return Series("reward", "training", "", "number", *points)


def phase_seconds(run: RunData) -> tuple[list[int], dict[str, list[float]]]:
    """Steps, and the seconds of each phase by its title; what no phase accounts for is `everything else`."""
    groups = bins(run.rows("train"), MOST_BARS)
    split = any(number(row.get(phase.key)) is not None for row in run.rows("train") for phase in PHASES)
    seconds: dict[str, list[float]] = defaultdict(list)
    for group in groups:
        known = 0.0
        for phase in PHASES:
            found = mean_of(group, first(phase.key) if split else first(phase.older)) or 0.0
            seconds[phase.title].append(max(0.0, found))
            known += max(0.0, found)
        whole = mean_of(group, first("seconds")) or 0.0
        seconds[REST.title].append(max(0.0, whole - known))
    used = {title: values for title, values in seconds.items() if any(values)}
    return [step_of(group) for group in groups], used


def validations(run: RunData) -> list[tuple[int, Estimate]]:
    """The held-out reward at each validated step, with its interval over questions; nan without the rollouts."""
    by_step: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for entry in run.rollouts:
        if entry.side == "val" and entry.reward is not None:
            by_step[entry.step][entry.question_id].append(entry.reward)
    found = {step: estimate(fmean(values) for values in rewards.values()) for step, rewards in by_step.items()}
    for row in run.rows("val"):
        mean = number(row.get("val/reward_mean"))
        if mean is not None and row["step"] not in found:
            found[int(row["step"])] = Estimate(mean, float("nan"), float("nan"), 0)
    return sorted(found.items())


def counted(run: RunData, prefix: str) -> dict[str, int]:
    """How often each reason below a metric's prefix occurred in training, most frequent first."""
    counts: Counter[str] = Counter()
    for row in run.rows("train"):
        for key, value in row.items():
            if key.startswith(prefix):
                counts[key.removeprefix(prefix)] += int(number(value) or 0)
    return dict(counts.most_common(12))
