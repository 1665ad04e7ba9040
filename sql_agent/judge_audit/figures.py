"""What report.json says of one judge: its figures over all items, and by kind and task type, with flips and cost.

Guarantees: pure functions of what was measured; an item that could not be scored is in no rate, and its cost counts;
a flip compares an item with its own rewriting. Not covered: asking the judges (commands/judge_report.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from foundation.grouping import grouped
from sql_agent.judge_audit.items import HARMLESS, JudgedItem, Rewriting
from sql_agent.judge_audit.metrics import (
    Flips,
    Scored,
    bootstrap,
    calibration,
    calibration_error,
    flips,
    mean,
    summaries,
    summary,
)
from sql_agent.judge_audit.view import USAGE
from sql_agent.records import Reward

SECONDS = "judging_s"  # in a reward's metadata: how long its score took


@dataclass
class Measured:
    """One judge's rewards: of the items as they are, and of their rewritings, each in the order of the items."""

    name: str
    scorer: str
    seconds: float = 0.0
    plain: list[Reward] = field(default_factory=list)
    rewritten: dict[Rewriting, list[Reward | None]] = field(default_factory=dict)
    strategies: dict[str, list[Reward]] = field(default_factory=dict)

    @property
    def rewards(self) -> list[Reward]:
        groups = [*self.rewritten.values(), *self.strategies.values()]
        return [*self.plain, *(r for rewards in groups for r in rewards if r)]

    def flips(self, how: Sequence[Rewriting], which: Sequence[int], *, threshold: float) -> Flips:
        """What these rewritings changed, all together, on the items of these numbers that were scored both times."""
        pairs = [(self.plain[i], self.rewritten[kind][i]) for kind in how if kind in self.rewritten for i in which]
        both = [(value_of(before), value_of(after)) for before, after in pairs]
        return flips([(a, b) for a, b in both if a is not None and b is not None], threshold=threshold)


def value_of(reward: Reward | None) -> float | None:
    """The answer's part of a reward; None when it is unscored."""
    return reward.parts.get("answer") if reward else None


def figures(items: list[JudgedItem], judge: Measured, *, threshold: float, margin: float) -> dict[str, Any]:
    """What report.json says of one judge."""
    values = [value_of(r) for r in judge.plain]
    scored = [Scored(item, value) for item, value in zip(items, values, strict=True) if value is not None]
    honest = [s for s in scored if not s.item.is_attack]
    sides = {"threshold": threshold, "margin": margin}
    every = range(len(items))
    flipped = {how: judge.flips([how], every, threshold=threshold) for how in judge.rewritten}
    return {
        "judge": judge.name,
        "scorer": judge.scorer,
        "n_scored": len(scored),
        "unscored": dict(Counter(r.unscored for r in judge.rewards if r.unscored)),
        **summary(scored, **sides).model_dump(),
        "honest": summary(honest, **sides).model_dump(),
        "flips": {how.name: {"about": how.about, **flip.model_dump()} for how, flip in flipped.items()},
        "calibration": [b.model_dump() for b in calibration(scored)],
        "calibration_error": calibration_error(scored),
        "by_kind": groups(items, judge, scored, lambda item: item.kind, **sides),
        "by_task": groups(items, judge, scored, lambda item: item.task_type, **sides),
        "strategies": {name: paid(rewards) for name, rewards in judge.strategies.items()},
        "cost": cost(judge),
    }


def groups(
    items: Sequence[JudgedItem],
    judge: Measured,
    scored: Sequence[Scored],
    key: Callable[[JudgedItem], str],
    *,
    threshold: float,
    margin: float,
) -> dict[str, Any]:
    """The figures of each kind or task type; kinds of attacks first.

    `flips` are those of each rewriting, and of all that change no word, `harmless`; `cost` is one score's.
    """
    numbers_of = grouped(range(len(items)), lambda number: key(items[number]))
    ways = {how.name: [how] for how in judge.rewritten} | {"harmless": list(HARMLESS)}
    figures_of: dict[str, Any] = {}
    for name, group in summaries(scored, lambda s: key(s.item), threshold=threshold, margin=margin).items():
        numbers = numbers_of[name]
        flipped = {way: judge.flips(how, numbers, threshold=threshold).flips for way, how in ways.items()}
        figures_of[name] = group.model_dump() | {
            "flips": {way: rate.model_dump() for way, rate in flipped.items()},
            "cost": cost_of_one([judge.plain[number] for number in numbers]),
        }
    return figures_of


def paid(rewards: Sequence[Reward]) -> dict[str, Any]:
    """The mean reward of a strategy, the bonus included, over the questions that could be scored."""
    totals = [r.total for r in rewards if r.total is not None]
    return {"n": len(totals), **bootstrap(totals, mean).model_dump()}


def cost_of_one(rewards: Sequence[Reward]) -> dict[str, Any]:
    """What one of these scores cost on average; `seconds` include the wait for a turn."""
    usages = [reward.metadata.get("judge_usage") or {} for reward in rewards]
    spent = {
        "calls": [usage.get("calls", 0) for usage in usages],
        "tokens": [usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0) for usage in usages],
        "seconds": [reward.metadata[SECONDS] for reward in rewards],
    }
    return {name: bootstrap(values, mean).model_dump() for name, values in spent.items()}


def cost(judge: Measured) -> dict[str, Any]:
    """What a model was asked (an answer that says nothing needs no call, a verdict of the cache neither), and times."""
    usages = [usage for r in judge.rewards if (usage := r.metadata.get("judge_usage"))]
    spent = {name: sum(usage[name] for usage in usages) for name in USAGE}
    times = {"seconds": judge.seconds, "ms_per_score": 1000 * judge.seconds / len(judge.rewards)}
    return {"scores": len(judge.rewards), **spent, **times}
