"""Whatever a run's files hold, as the type that the report needs: a value of another type counts as missing."""

from __future__ import annotations

import json
import math
from typing import Any

Tree = dict[str, Any]


def number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        as_float = float(value)
    except OverflowError:  # JSON has integers of any length
        return None
    return as_float if math.isfinite(as_float) else None


def tree(value: Any) -> Tree:
    """A JSON object; {} for anything else."""
    return value if isinstance(value, dict) else {}


def text(value: Any) -> str:
    """A text as it is, nothing as "", anything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def cut(value: Any, most_chars: int) -> str:
    """The text's first `most_chars` characters, and how many more there are."""
    whole = text(value)
    return whole if len(whole) <= most_chars else f"{whole[:most_chars]}… (+{len(whole) - most_chars} characters)"
