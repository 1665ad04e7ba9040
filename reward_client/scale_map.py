"""The map from a reward model's raw logits to [0, 1]: straight lines between fitted points.

Guarantees: it never falls, stays in [0, 1], and a file that is no such map is refused with what is wrong in it.
Not covered: fitting one (reward_model/scale.py does).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from foundation.errors import problems_of

MAX_POINTS = 10_000


class ScaleMap(BaseModel):
    """A monotone map from logits to [0, 1]: straight lines between the points, flat beyond them.

    On disk it is JSON with `logits` (rising) and `rewards` (not falling, in [0, 1]); other keys are notes.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

    logits: tuple[float, ...] = Field(min_length=2, max_length=MAX_POINTS)
    rewards: tuple[float, ...] = Field(min_length=2, max_length=MAX_POINTS)

    @model_validator(mode="after")
    def _monotone(self) -> Self:
        if len(self.logits) != len(self.rewards):
            raise ValueError("`logits` and `rewards` need the same number of points")
        if any(a >= b for a, b in pairwise(self.logits)):
            raise ValueError("`logits` must rise")
        if any(a > b for a, b in pairwise(self.rewards)):
            raise ValueError("`rewards` must not fall")
        if self.rewards[0] < 0 or self.rewards[-1] > 1:
            raise ValueError("`rewards` must lie in [0, 1]")
        return self

    def __call__(self, logit: float) -> float:
        """The reward of one logit. Raises ValueError for NaN."""
        if math.isnan(logit):
            raise ValueError("NaN is no logit")
        right = bisect_right(self.logits, logit)
        if right == 0 or right == len(self.logits):
            return self.rewards[0] if right == 0 else self.rewards[-1]
        (x0, x1), (y0, y1) = self.logits[right - 1 : right + 1], self.rewards[right - 1 : right + 1]
        return min(y1, y0 + (y1 - y0) * (logit - x0) / (x1 - x0))  # rounding may pass y1


def load_scale(path: Path) -> ScaleMap:
    """The map in a JSON file. Raises ValueError that names the file and what is wrong."""
    try:
        return ScaleMap.model_validate_json(path.read_bytes())
    except OSError as exc:
        raise ValueError(f"{path}: no scale map can be read there ({exc.strerror})") from None
    except ValidationError as exc:
        raise ValueError(f"{path}: no scale map ({problems_of(exc, most=1)})") from None
