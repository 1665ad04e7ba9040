"""Numbers as reward functions give them: Python's, and what numpy, torch and pandas have for one or for several.

Guarantees: neither library is imported; what is no number is None and never guessed at (text, None, a list in a list).
"""

from __future__ import annotations

from decimal import Decimal
from numbers import Real
from typing import Any


def number_of(value: Any) -> float | None:
    """One number: also a scalar, array or tensor that holds one; a masked one is none. NaN and infinity are numbers."""
    try:
        if hasattr(value, "tolist"):
            value = value.tolist()  # of what is masked it gives None, where item() gives 0
            while isinstance(value, list) and len(value) == 1:
                value = value[0]
        return float(value) if isinstance(value, Real | Decimal) else None
    except (ValueError, RuntimeError, OverflowError):  # a tensor without data; a whole number beyond any float
        return None


def rows_of(values: Any) -> list[Any] | None:
    """A value for each row, from a list, an array, a tensor or a column; None where it is neither."""
    if hasattr(values, "tolist"):
        single, values = number_of(values), values.tolist()
        return values if single is None and isinstance(values, list) else [single]
    return list(values) if isinstance(values, list | tuple) else None
