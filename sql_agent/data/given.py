"""What programs have in hand, as files hold it: rows and frames, values of numpy.

Guarantees: pandas, numpy, datasets and polars are recognised by what they offer, and none of them is imported; what
cannot be passed on is a UserError that names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from foundation.errors import UserError

MISSING = ("NAType", "NaTType")  # of pandas


def plain(value: Any, *, what: str) -> Any:
    """A value as JSON has it. Raises UserError, which calls it `what`."""
    if value is None or type(value).__name__ in MISSING:
        return None
    if isinstance(value, bool | str | int | float):
        return None if value != value else value  # NaN is how a frame says that nothing is there
    if isinstance(value, Mapping):
        return {str(key): plain(part, what=f"{what}.{key}") for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(part, what=what) for part in value]
    if isinstance(value, date | time):  # a datetime and a Timestamp are dates too
        return value.isoformat()
    if isinstance(value, Path | Decimal):
        return str(value) if isinstance(value, Path) else float(value)
    if hasattr(value, "tolist"):
        return plain(value.tolist(), what=what)
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(), what=what)
    raise UserError(
        f"{what} = {value!r:.80}: a {type(value).__name__} cannot be passed on; give text, numbers or lists"
    )


def rows_of(source: Any) -> list[Any]:
    """The rows of a list, a frame (pandas, polars, arrow), a datasets.Dataset, or columns by name. Raises UserError."""
    if isinstance(source, Mapping):
        columns = dict(source)
        if any(hasattr(column, "column_names") for column in columns.values()):
            raise UserError(f"dataset: holds the splits {', '.join(columns)}; give one of them")
        if not all(hasattr(column, "__len__") and not isinstance(column, str | Mapping) for column in columns.values()):
            raise UserError("dataset: one mapping is no data set; give a list of them")
        rows: Any = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    elif hasattr(source, "to_dicts"):
        rows = source.to_dicts()
    elif hasattr(source, "to_pylist"):
        rows = source.to_pylist()
    elif hasattr(source, "columns") and hasattr(source, "to_dict"):
        rows = source.to_dict("records")
    elif isinstance(source, Iterable):
        rows = source
    else:
        raise UserError(
            f"dataset = {source!r:.80}: a {type(source).__name__} is no data set; give rows, a frame or a file"
        )
    return [plain(row, what=f"dataset, row {number}") for number, row in enumerate(rows, start=1)]
