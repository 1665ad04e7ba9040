"""The numbers at the top of the report: reward before, after and the difference, each with its interval.

They come from the evaluation, else from the summary that once had one, else from the first and the last validation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from sql_agent.run_report.cases import compared, sides
from sql_agent.run_report.folder import RunData
from sql_agent.run_report.measures import Estimate, estimate, validations
from sql_agent.run_report.plain import Tree, items, number, text, tree

NAN = math.nan


@dataclass(frozen=True)
class Headline:
    """One comparison. `before` and `delta` are None where one model alone was measured."""

    title: str
    note: str
    after: Estimate
    before: Estimate | None = None
    delta: Estimate | None = None
    tasks: list[Headline] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """better or worse where the interval of the difference excludes 0, else `no clear difference`."""
        if self.delta is None or math.isnan(self.delta.low):
            return ""
        return "better" if self.delta.low > 0 else "worse" if self.delta.high < 0 else "no clear difference"


@dataclass(frozen=True)
class MeasureRow:
    """One line of the table of all measures: of one split and decoding, on both sides."""

    where: str
    measure: str
    before: Estimate | None
    after: Estimate
    delta: Estimate | None


def read_estimate(found: object) -> Estimate | None:
    """An interval of results.json; None where there is no mean."""
    values = tree(found)
    mean, low, high = (number(values.get(name)) for name in ("mean", "low", "high"))
    if mean is None:
        return None
    n = int(number(values.get("n")) or 0)
    return Estimate(mean, NAN if low is None else low, NAN if high is None else high, n)


def headlines(run: RunData) -> list[Headline]:
    """All comparisons that this run has, most telling first; [] where nothing was held out."""
    if run.evaluated:
        return _evaluated(run)
    if tree(run.summary.get("after")):
        return _summarized(run.summary)
    return _validated(run)


def _models(run: RunData) -> tuple[Tree, Tree]:
    """Figures before (may be {}) and after, by split/decoding."""
    models = [tree(found) for found in tree(run.results.get("models")).values()]
    return (models[0] if len(models) > 1 else {}), models[-1]


def _evaluated(run: RunData) -> list[Headline]:
    old, new = _models(run)
    deltas = tree(run.results.get("delta"))
    found = []
    for key in new:
        after = read_estimate(_measure(new[key], "reward"))
        if after is not None:
            before, delta = read_estimate(_measure(old.get(key), "reward")), tree(deltas.get(key)).get("reward")
            tasks = _tasks(tree(old.get(key)), tree(new[key]))
            found.append(_headline(key, after, before, read_estimate(delta), tasks, lost=_lost(old, new, key)))
    return found


def _lost(old: Tree, new: Tree, key: str) -> int:
    """Trials that a fault left unscored, on both sides."""
    counts = [n for side in (old, new) for n in tree(tree(side.get(key)).get("unscored")).values()]
    return int(sum(number(n) or 0 for n in counts))


def _measure(figures: object, name: str) -> object:
    return tree(tree(figures).get("measures")).get(name)


def _headline(
    key: str,
    after: Estimate,
    before: Estimate | None,
    delta: Estimate | None,
    tasks: list[Headline],
    *,
    lost: int = 0,
) -> Headline:
    split, _, decoding = key.partition("/")
    n, unscored = f"{after.n} questions" if after.n else "", f"{lost} trials unscored" if lost else ""
    return Headline(split, ", ".join(part for part in (decoding, n, unscored) if part), after, before, delta, tasks)


def _tasks(old: Tree, new: Tree) -> list[Headline]:
    """The reward by task type."""

    def by_task(figures: Tree) -> Tree:
        finer = {task: tree(found).get("reward") for task, found in tree(figures.get("by_task")).items()}
        return finer or tree(figures.get("reward_by_task"))

    before, after = by_task(old), by_task(new)
    found = []
    for task, figures in list(after.items())[:30]:
        if (mean := read_estimate(figures)) is not None:
            found.append(Headline(task, f"{mean.n} questions", mean, read_estimate(before.get(task))))
    return found


def _summarized(summary: Tree) -> list[Headline]:
    """From the four keys that `make demo` adds; means without intervals of their own."""
    before, after, delta, interval = (tree(summary.get(k)) for k in ("before", "after", "delta", "delta_ci95"))
    found = []
    for key in after:
        old, new, change = (number(side.get(key)) for side in (before, after, delta))
        low, high = [*(number(v) for v in items(interval.get(key))), None, None][:2]
        if new is None:
            continue
        difference = None
        if change is not None:
            difference = Estimate(change, NAN if low is None else low, NAN if high is None else high, 0)
        found.append(_headline(key, _point(new), None if old is None else _point(old), difference, []))
    return found


def _point(value: float) -> Estimate:
    return Estimate(value, NAN, NAN, 0)


def _validated(run: RunData) -> list[Headline]:
    found = validations(run)
    if not found:
        return []
    step, after = found[-1]
    n = f"{after.n} questions" if after.n else ""
    if len(found) == 1:
        return [Headline("validation", ", ".join(part for part in (f"greedy, step {step}", n) if part), after)]
    changes = [question.change for question in compared(run)] if sides(run)[0].startswith("validation") else []
    note = ", ".join(part for part in (f"greedy, step {found[0][0]} and step {step}", n) if part)
    return [Headline("validation", note, after, found[0][1], estimate(changes) if changes else None)]


def measure_rows(run: RunData) -> list[MeasureRow]:
    """Every measure of the evaluation, by split and decoding."""
    if not run.evaluated:
        return []
    old, new = _models(run)
    deltas = tree(run.results.get("delta"))
    found = []
    for key, figures in new.items():
        for name, values in list(tree(tree(figures).get("measures")).items())[:30]:
            after = read_estimate(values)
            if after is not None:
                before = read_estimate(_measure(old.get(key), name))
                delta = read_estimate(tree(deltas.get(key)).get(name))
                found.append(MeasureRow(text(key).replace("/", ", "), text(name), before, after, delta))
    return found
