"""The numbers at the top of the report: reward before, after and the difference, each with its interval.

They come from the evaluation, else from the first and the last validation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from foundation.rollout_keys import DEFAULT_AGENT
from foundation.stats import Estimate, estimate
from sql_agent.evaluation.measures import OF_SQL
from sql_agent.evaluation.results import EvalReport, Figures, TaskFigures
from sql_agent.run_report.cases import compared, sides
from sql_agent.run_report.folder import RunData
from sql_agent.run_report.measures import validations

MOST_TASKS = 30


@dataclass(frozen=True)
class Headline:
    """One comparison. `before` and `delta` are None where one model alone was measured."""

    title: str
    note: str
    after: Estimate
    before: Estimate | None = None
    delta: Estimate | None = None
    tasks: list[Headline] = field(default_factory=list)

    def __str__(self) -> str:
        before, change = f"{self.before.brief()} -> " if self.before else "", ""
        if self.delta and self.verdict:
            change = f", {self.delta.mean:+.3f} [{self.delta.low:+.3f}, {self.delta.high:+.3f}]: {self.verdict}"
        return f"held out, {self.title}: reward {before}{self.after.brief()}{change} ({self.note})"

    @property
    def verdict(self) -> str:
        """better or worse where the interval of the difference excludes 0, else `no clear difference`."""
        if self.delta is None or math.isnan(self.delta.low):
            return ""
        return "better" if self.delta.low > 0 else "worse" if self.delta.high < 0 else "no clear difference"


def headlines(run: RunData) -> list[Headline]:
    """All comparisons that this run has, most telling first; [] where nothing was held out."""
    return _evaluated(run.results) if run.results else _validated(run)


def _evaluated(results: EvalReport) -> list[Headline]:
    old, new = results.sides
    return [
        Headline(
            key.partition("/")[0],
            _note(key, figures, old.get(key)),
            *_sides(results, key, "reward"),
            [
                *_tasks(old[key].by_agent if key in old else {}, figures.by_agent),
                *_tasks(old[key].by_task if key in old else {}, figures.by_task),
            ],
        )
        for key, figures in new.items()
        if figures.measures["reward"].n
    ]


def _sides(results: EvalReport, key: str, measure: str) -> tuple[Estimate, Estimate | None, Estimate | None]:
    old, new = results.sides
    before = old[key].measures.get(measure) if key in old else None
    return new[key].measures[measure], _known(before), _known(results.delta.get(key, {}).get(measure))


def _known(estimate: Estimate | None) -> Estimate | None:
    return estimate if estimate and estimate.n else None


def _note(key: str, after: Figures, before: Figures | None) -> str:
    """Decoding, questions, and the trials of both sides that a fault left unscored."""
    note = f"{key.partition('/')[2]}, {after.measures['reward'].n} questions"
    lost = sum(sum(figures.unscored.values()) for figures in (after, before) if figures)
    return f"{note}, {lost} trials unscored" if lost else note


def _tasks(old: dict[str, TaskFigures], new: dict[str, TaskFigures]) -> list[Headline]:
    rewards = {task: figures.measures["reward"] for task, figures in list(new.items())[:MOST_TASKS]}
    return [
        Headline(task, f"{after.n} questions", after, _known(old[task].measures["reward"] if task in old else None))
        for task, after in rewards.items()
        if after.n
    ]


def _validated(run: RunData) -> list[Headline]:
    agents = sorted({entry.agent for entry in run.rollouts if entry.side == "val"})
    parts = [None, *agents] if any(agents) else [None]
    return [headline for agent in parts if (headline := _validation(run, agent))]


def _validation(run: RunData, agent: str | None) -> Headline | None:
    points = validations(run, agent)
    title = "validation" if agent is None else f"validation: {agent or DEFAULT_AGENT}"
    if not points:
        return None
    step, after = points[-1]
    n = f"{after.n} questions" if after.n else ""
    if len(points) == 1:
        return Headline(title, ", ".join(part for part in (f"greedy, step {step}", n) if part), after)
    note = f"greedy, step {points[0][0]} and step {step}"
    both = compared(run) if sides(run)[0].startswith("validation") else []
    both = [question for question in both if agent in (None, question.after[0].agent)]
    if not both:
        return Headline(title, ", ".join(part for part in (note, n) if part), after, points[0][1])
    lost = len({e.question_id for e in run.rollouts if e.side == "val" and agent in (None, e.agent)}) - len(both)
    note += f", {len(both)} questions" + (f", {lost} more not scored in both" if lost else "")
    old, new, change = (estimate(getattr(q, side) for q in both) for side in ("old", "new", "change"))
    return Headline(title, note, new, old, change)


def measure_rows(results: EvalReport | None) -> list[Headline]:
    """Every measure of the evaluation that has a meaning for its agent, by split and decoding; its name is the note."""
    if results is None:
        return []
    return [
        Headline(key.replace("/", ", "), name, *_sides(results, key, name))
        for key, figures in results.sides[1].items()
        for name, after in figures.measures.items()
        if after.n and (results.database or name not in OF_SQL)
    ]
