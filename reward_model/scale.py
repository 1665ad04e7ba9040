"""The map from raw logits to [0, 1]: fitted once, kept beside the model, applied wherever a reward is needed.

Isotonic regression of labels on logits gives blocks of equal value; the map runs in straight lines through the centres
of the blocks (centered isotonic regression, Oron and Flournoy 2017) and is level beyond the outer ones. So it never
falls, and two logits between the outer centres stay in order instead of being tied. Guarantees: values lie in [0, 1];
a map is bound to the weights it was fitted on. Not covered: whether the labelled set resembles what will be scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import ConfigDict, Field, ValidationError
from scipy.optimize import isotonic_regression

from foundation.errors import UserError, problems_of
from reward_client.scale_map import ScaleMap

SCALE_FILE = "reward_scale.json"
MIN_ROWS = 20


class RewardScale(ScaleMap):
    """A map and what it was fitted on."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    weights_sha256: str
    n_rows: int = Field(ge=MIN_ROWS)
    needs_reference: bool
    mean_error: float = Field(ge=0, le=1)


def check_enough(n_rows: int) -> None:
    """Raise UserError for fewer labelled rows than a map needs."""
    if n_rows < MIN_ROWS:
        raise UserError(f"{n_rows} labelled rows: a scale needs {MIN_ROWS} or more, better some hundred")


def fit(logits: Sequence[float], labels: Sequence[float], *, weights_sha256: str, needs_reference: bool) -> RewardScale:
    """Fit a map. Raises UserError for too few rows, or when higher logits do not go with higher labels."""
    check_enough(len(logits))
    order = np.argsort(logits, kind="stable")
    x, y = np.asarray(logits, dtype=float)[order], np.asarray(labels, dtype=float)[order]
    values = isotonic_regression(y).x
    # One knot per block of equal values, at the mean logit of the block.
    starts = np.flatnonzero(np.diff(values, prepend=-1.0))
    blocks = list(zip(starts, [*starts[1:], len(x)], strict=True))
    knots: dict[float, float] = {float(x[a:b].mean()): float(np.clip(values[a], 0.0, 1.0)) for a, b in blocks}
    if len(knots) < 2:
        raise UserError(
            f"the scores of these {len(x)} rows say nothing about their labels (the best monotone map is one value, "
            f"{values[0]:.2f}). Check that the labelled set fits the model and has good and bad answers"
        )
    scale = RewardScale(
        weights_sha256=weights_sha256,
        logits=tuple(sorted(knots)),
        rewards=tuple(knots[key] for key in sorted(knots)),
        n_rows=len(x),
        needs_reference=needs_reference,
        mean_error=0.0,
    )
    error = float(np.mean([abs(scale(a) - b) for a, b in zip(x, y, strict=True)]))
    return scale.model_copy(update={"mean_error": error})


def load_scale(path: Path, *, weights_sha256: str) -> RewardScale:
    """The map in a file. Raises UserError when it is malformed or belongs to other weights."""
    try:
        scale = RewardScale.model_validate_json(path.read_bytes())
    except OSError as exc:
        raise UserError(f"{path}: cannot be read ({exc.strerror}); `agentgrpo reward-model scale` fits one") from None
    except ValidationError as exc:
        why = problems_of(exc, most=1)
        raise UserError(f"{path}: not a reward scale ({why}); fit it again: `agentgrpo reward-model scale`") from None
    if scale.weights_sha256 != weights_sha256:
        raise UserError(f"{path}: was fitted on other weights than these; fit it again: `agentgrpo reward-model scale`")
    return scale
