"""Numbers with their uncertainty: bootstrap intervals, paired differences, best and worst of k.

Guarantees: the unit is the question (the caller gives one value per question); everything random is seeded, so the same
values give the same figures. Pure functions of numbers; what is measured is defined in measures.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import BeforeValidator

RESAMPLES = 4000
FLIPS = 9999
SEED = 0
# A number of results.json, where null is NaN.
Figure = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]


@dataclass(frozen=True)
class Estimate:
    """A mean over questions and its 95 % bootstrap interval; `n` questions. Without questions: NaN.

    As a text it has the interval where there are two questions or more.
    """

    form: ClassVar = ".3f"

    mean: Figure
    low: Figure
    high: Figure
    n: int

    def __str__(self) -> str:
        has_interval = self.n > 1 and not math.isnan(self.low)
        return f"{self.brief()} [{self.low:{self.form}}, {self.high:{self.form}}]" if has_interval else self.brief()

    def brief(self) -> str:
        """The mean alone; of a difference with its sign."""
        return f"{self.mean:{self.form}}" if self.n else "-"


@dataclass(frozen=True)
class Difference(Estimate):
    """A mean paired difference. `p` is the two-sided sign-flip permutation p-value; None where it was not asked for."""

    form: ClassVar = "+.3f"

    p: float | None = None


@dataclass(frozen=True)
class Quantiles:
    """The middle and the slow end of `n` values. Without values: NaN."""

    p50: Figure
    p95: Figure
    n: int


def estimate(values: Iterable[float]) -> Estimate:
    """Mean and percentile bootstrap interval (Efron 1979)."""
    data = np.asarray(list(values), dtype=float)
    if not len(data):
        return Estimate(math.nan, math.nan, math.nan, 0)
    rng = np.random.default_rng(SEED)
    means = np.concatenate(
        [data[rng.integers(0, len(data), (200, len(data)))].mean(axis=1) for _ in range(RESAMPLES // 200)]
    )
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(float(data.mean()), float(low), float(high), len(data))


def difference(before: Mapping[str, float], after: Mapping[str, float], *, test: bool) -> Difference:
    """after - before over the keys (questions) that both have; `test` adds the p-value."""
    pairs = [after[key] - before[key] for key in before if key in after]
    return Difference(**vars(estimate(pairs)), p=sign_flip_p(pairs) if test and pairs else None)


def sign_flip_p(differences: Sequence[float]) -> float:
    """How often flipped signs give a mean at least as far from 0 (Fisher's test): exact up to 13 questions."""
    if len(differences) < 2:
        return 1.0
    # Loading scipy.stats takes a second, and only a comparison needs it.
    from scipy.stats import permutation_test

    test = permutation_test(
        (np.asarray(differences, dtype=float),),
        lambda x, axis: x.mean(axis=axis),
        permutation_type="samples",
        n_resamples=FLIPS,
        vectorized=True,
        batch=1000,
        rng=np.random.default_rng(SEED),
    )
    return float(test.pvalue)


def best_of(values: Sequence[float], k: int) -> float:
    """The expected largest of k of these samples, drawn without replacement: unbiased for the best of k fresh ones.

    For values of 0 and 1 it is the usual estimator of pass@k. Raises ValueError unless 1 <= k <= len(values).
    """
    n = len(values)
    if not 1 <= k <= n:
        raise ValueError(f"k = {k}: must lie between 1 and the number of samples, {n}")
    ranked = enumerate(sorted(values))
    return math.fsum(value * math.comb(rank, k - 1) for rank, value in ranked) / math.comb(n, k)


def worst_of(values: Sequence[float], k: int) -> float:
    """The expected smallest of k of these samples; see best_of."""
    return -best_of([-value for value in values], k)


def quantiles(values: Sequence[float]) -> Quantiles:
    if not len(values):
        return Quantiles(math.nan, math.nan, 0)
    p50, p95 = np.quantile(np.asarray(values, dtype=float), [0.5, 0.95])
    return Quantiles(float(p50), float(p95), len(values))
