"""The map from a reward model's raw logits to [0, 1], as the client applies it: straight lines between fitted points.

Guarantees: it never falls, stays in [0, 1], and a file that is no such map is refused with what is wrong in it.
Not covered: fitting one (utils/reward_scale.py does).
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ScaleMap:
    """A monotone map from logits to [0, 1]: straight lines between the points, flat beyond them.

    On disk it is JSON with `logits` (rising) and `rewards` (not falling, in [0, 1]); other keys are notes.
    """

    logits: tuple[float, ...]
    rewards: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.logits) != len(self.rewards) or len(self.logits) < 2:
            raise ValueError("`logits` and `rewards` need the same number of points, at least two")
        if not all(math.isfinite(x) for x in (*self.logits, *self.rewards)):
            raise ValueError("`logits` and `rewards` must be finite numbers")
        if any(a >= b for a, b in zip(self.logits, self.logits[1:], strict=False)):
            raise ValueError("`logits` must rise")
        if any(a > b for a, b in zip(self.rewards, self.rewards[1:], strict=False)):
            raise ValueError("`rewards` must not fall")
        if self.rewards[0] < 0 or self.rewards[-1] > 1:
            raise ValueError("`rewards` must lie in [0, 1]")

    def __call__(self, logit: float) -> float:
        """The reward of one logit. Raises ValueError for NaN."""
        if math.isnan(logit):
            raise ValueError("NaN is no logit")
        right = bisect_right(self.logits, logit)
        if right == 0 or right == len(self.logits):
            return self.rewards[0] if right == 0 else self.rewards[-1]
        (x0, x1), (y0, y1) = self.logits[right - 1 : right + 1], self.rewards[right - 1 : right + 1]
        return y0 + (y1 - y0) * (logit - x0) / (x1 - x0)


def load_scale(path: Path) -> ScaleMap:
    """The map in a JSON file. Raises ValueError that names the file and what is wrong."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return ScaleMap(tuple(map(float, data["logits"])), tuple(map(float, data["rewards"])))
    except OSError as exc:
        raise ValueError(f"{path}: no scale map can be read there ({exc.strerror})") from None
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        problem = f"no {exc}" if isinstance(exc, KeyError) else str(exc)
        raise ValueError(f"{path}: no scale map ({problem})") from None
