"""Execution match: are two result sets the same?

The rule: the same number of columns and the same rows, each as often. Names and order of columns do not matter (the
same columns must fit for all rows); the order of rows matters only where the reference query orders its outermost
rows. Numbers are equal in nine significant digits, texts without blanks at their ends; NULL equals NULL; no
text equals a number.
Guarantees: pure functions; a search over column orders that is cut off early by each column's own values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

DIGITS = 9
MAX_ORDERS = 5000  # column orders tried; only results whose columns hold the same values need more than one


def same_results(wanted: Sequence[Sequence[Any]], given: Sequence[Sequence[Any]], *, ordered: bool) -> bool:
    """True when the rows of `given` are those of `wanted` under the rule above."""
    if len(wanted) != len(given):
        return False
    if not wanted:
        return True
    left, right = [_row(row) for row in wanted], [_row(row) for row in given]
    if len(left[0]) != len(right[0]):
        return False
    for order in column_orders(left, right):
        arranged = [tuple(row[i] for i in order) for row in right]
        if arranged == left if ordered else Counter(arranged) == Counter(left):
            return True
    return False


def is_ordered(sql: str) -> bool:
    """True when the query's outermost rows come in an order that it asks for. Unreadable SQL counts as unordered."""
    query = _parsed(sql)
    return isinstance(query, exp.Query) and query.args.get("order") is not None


def reads_data(sql: str) -> bool:
    """False for a query that gives constants only, `SELECT 4` for example. Unreadable SQL counts as reading."""
    query = _parsed(sql)
    if not isinstance(query, exp.Query):
        return query is None
    computed = any(part.find(exp.Column, exp.Star, exp.AggFunc) for part in query.selects)
    return computed and query.find(exp.Table) is not None


def _parsed(sql: str) -> exp.Expr | None:
    try:
        return sqlglot.parse_one(sql, read="sqlite")
    except (SqlglotError, RecursionError):
        return None


def _row(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_value(cell) for cell in row)


def _value(cell: Any) -> Any:
    """A form in which equal cells are equal: 0.1 + 0.2 and 0.3 are one value, 1 and 1.0 too."""
    if isinstance(cell, float):
        return float(f"{cell:.{DIGITS}g}")
    return cell.strip() if isinstance(cell, str) else cell


def column_orders(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> Iterator[tuple[int, ...]]:
    """Arrangements of the right columns in which each holds the same values as the left one in its place."""
    wanted = [Counter(column) for column in zip(*left, strict=True)]
    given = [Counter(column) for column in zip(*right, strict=True)]
    fits = [[i for i, values in enumerate(given) if values == column] for column in wanted]
    tried = 0

    def extend(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        nonlocal tried
        if len(chosen) == len(fits):
            tried += 1
            yield chosen
            return
        for i in fits[len(chosen)]:
            if i not in chosen and tried < MAX_ORDERS:
                yield from extend((*chosen, i))

    yield from extend(())


MAX_RESULT_ROWS = 10_000  # of a result that is compared as a whole
