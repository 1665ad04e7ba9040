"""How often a reward model prefers the better side, in all and by what is wrong with the other.

A tie counts as wrong: a model that gives everything one score is right about nothing.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from scipy.stats import binomtest

from reward_model.pairs import Pair
from reward_model.scoring import RewardScorer


def pair_accuracy(scorer: RewardScorer, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Accuracy with its 95 % interval, mean margin in logits, and the accuracy of each kind."""
    sides = [side for pair in pairs for side in (pair.chosen, pair.rejected)]
    encoded = [scorer.encoder.encode([(turn.role, turn.content) for turn in side]) for side in sides]
    scores = [scored.score for scored in scorer.score_encoded(encoded)]
    margins = [good - bad for good, bad in zip(scores[::2], scores[1::2], strict=True)]
    by_kind: dict[str, list[float]] = defaultdict(list)
    for pair, margin in zip(pairs, margins, strict=True):
        by_kind[pair.kind or "unnamed"].append(margin)
    interval = binomtest(sum(m > 0 for m in margins), len(margins)).proportion_ci(method="wilson")
    return {
        "n": len(margins),
        "accuracy": _share(margins),
        "interval": [float(interval.low), float(interval.high)],
        "mean_margin": statistics.fmean(margins),
        "kinds": {kind: {"n": len(m), "accuracy": _share(m)} for kind, m in sorted(by_kind.items())},
    }


def _share(margins: Sequence[float]) -> float:
    return sum(margin > 0 for margin in margins) / len(margins)
