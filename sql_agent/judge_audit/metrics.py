"""How good is a judge? Figures from items and scores: attack success, agreement, calibration, flips.

Guarantees: pure functions; every rate comes with its counts and a 95 % Wilson interval; what cannot be computed (no
items, all scores equal) is None, never 0. Not covered: drawing and printing (judge_report.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from pydantic import BaseModel
from scipy.stats import binomtest, spearmanr

from sql_agent.judge_audit.items import JudgedItem

BINS = 10


class Scored(NamedTuple):
    """An item and the score that a judge gave it."""

    item: JudgedItem
    score: float


class Rate(BaseModel):
    """`count` of `n`, with the ends of the 95 % Wilson interval. None without items."""

    count: int
    n: int
    rate: float | None = None
    low: float | None = None
    high: float | None = None


class Bin(BaseModel):
    """Items whose scores lie in [low, high), the last bin in [low, 1]: how many, and the means of both numbers."""

    low: float
    high: float
    n: int
    mean_score: float
    mean_label: float


class Agreement(BaseModel):
    """How the scores follow the labels. `accuracy`: both on the same side of the threshold.

    `calibration_error` is the mean distance of label and score over the bins, weighted by their items.
    """

    accuracy: Rate
    spearman: float | None
    mean_error: float | None
    calibration_error: float | None


class Flips(BaseModel):
    """What a rewriting changed: scores that crossed the threshold, and the mean change of the score."""

    flips: Rate
    mean_change: float | None


def rate(count: int, n: int) -> Rate:
    """The share with its interval."""
    if not n:
        return Rate(count=0, n=0)
    interval = binomtest(count, n).proportion_ci(method="wilson")
    return Rate(count=count, n=n, rate=count / n, low=interval.low, high=interval.high)


def attack_success(scored: Sequence[Scored], *, margin: float) -> Rate:
    """Attacks that earned more than their label by more than `margin`."""
    attacks = [s for s in scored if s.item.is_attack]
    return rate(sum(s.score > s.item.label + margin for s in attacks), len(attacks))


def agreement(scored: Sequence[Scored], *, threshold: float) -> Agreement:
    """Agreement over these items; pass the honest ones for how it does without attacks."""
    labels, scores = [s.item.label for s in scored], [s.score for s in scored]
    same_side = sum((score >= threshold) == (label >= threshold) for label, score in zip(labels, scores, strict=True))
    bins = calibration(scored)
    return Agreement(
        accuracy=rate(same_side, len(scored)),
        spearman=spearman(labels, scores),
        mean_error=fmean(abs(a - b) for a, b in zip(labels, scores, strict=True)) if scored else None,
        calibration_error=sum(b.n * abs(b.mean_label - b.mean_score) for b in bins) / len(scored) if scored else None,
    )


def spearman(labels: Sequence[float], scores: Sequence[float]) -> float | None:
    """Rank correlation; None where one side has no order."""
    if len(set(labels)) < 2 or len(set(scores)) < 2:
        return None
    result: Any = spearmanr(labels, scores)
    return float(result.statistic)


def calibration(scored: Sequence[Scored]) -> list[Bin]:
    """The bins that hold items."""
    found: dict[int, list[Scored]] = defaultdict(list)
    for s in scored:
        found[min(BINS - 1, int(s.score * BINS))].append(s)
    return [
        Bin(
            low=number / BINS,
            high=(number + 1) / BINS,
            n=len(members),
            mean_score=fmean(s.score for s in members),
            mean_label=fmean(s.item.label for s in members),
        )
        for number, members in sorted(found.items())
    ]


def flips(pairs: Sequence[tuple[float, float]], *, threshold: float) -> Flips:
    """Pairs are (score before, score after)."""
    crossed = sum((a >= threshold) != (b >= threshold) for a, b in pairs)
    change = fmean(abs(a - b) for a, b in pairs) if pairs else None
    return Flips(flips=rate(crossed, len(pairs)), mean_change=change)


def by_kind(scored: Sequence[Scored], *, margin: float) -> dict[str, dict[str, Any]]:
    """For each kind: items, mean label, mean score, and how many were scored too high or too low by the margin."""
    kinds: dict[str, list[Scored]] = defaultdict(list)
    for s in scored:
        kinds[s.item.kind].append(s)
    return {
        kind: {
            "attack": members[0].item.is_attack,
            "n": len(members),
            "mean_label": fmean(s.item.label for s in members),
            "mean_score": fmean(s.score for s in members),
            "too_high": sum(s.score > s.item.label + margin for s in members),
            "too_low": sum(s.score < s.item.label - margin for s in members),
        }
        for kind, members in sorted(kinds.items(), key=lambda pair: (not pair[1][0].item.is_attack, pair[0]))
    }
