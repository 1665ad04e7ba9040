"""Execution match: are two result sets the same?

The rule: the same number of columns and the same rows, each as often. Names and order of columns do not matter (the
same columns must fit for all rows); the order of rows matters only where the reference query orders its outermost
rows. Numbers are equal in nine significant digits and in all before the point, texts without blanks at their ends;
NULL equals NULL; no text equals a number.
Guarantees: pure functions; a search over column orders that is cut off early by each column's own values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

DIGITS = 9
MAX_RESULT_ROWS = 10_000  # of a result that is compared as a whole
MAX_ORDERS = 5000  # column orders tried; only results whose columns hold the same values need more than one


def same_results(expected: Sequence[Sequence[Any]], actual: Sequence[Sequence[Any]], *, ordered: bool) -> bool:
    """True when the rows of `given` are those of `wanted` under the rule above."""
    if len(expected) != len(actual):
        return False
    if not expected:
        return True
    left, right = [_row(row) for row in expected], [_row(row) for row in actual]
    return len(left[0]) == len(right[0]) and same_rows(left, right, ordered=ordered)


def same_rows(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]], *, ordered: bool) -> bool:
    """Whether the rows, of as many columns, are the same under one order of the columns."""
    for order in column_orders(left, right):
        arranged = [tuple(row[i] for i in order) for row in right]
        if arranged == left if ordered else Counter(arranged) == Counter(left):
            return True
    return False


def nearness(expected: Sequence[Sequence[Any]], actual: Sequence[Sequence[Any]], *, ordered: bool) -> float:
    """1 for the same results, else 0.5 times the product of their agreement, in [0, 0.5].

    A product, so that neither everything (`SELECT *`, a cross join) nor a single lucky row pays much.
    """
    if same_results(expected, actual, ordered=ordered):
        return 1.0
    return 0.5 * math.prod(agreement(expected, actual, ordered=ordered))


def agreement(
    expected: Sequence[Sequence[Any]], actual: Sequence[Sequence[Any]], *, ordered: bool
) -> tuple[float, float, float]:
    """Columns (precision times recall), precision of rows and recall of rows, each in [0, 1].

    Columns pair off by the values that they share. Rows are compared in those columns, each as often as it stands;
    where the reference orders its rows, only those in their place count.
    """
    if not expected or not actual:
        return 0.0, 0.0, 0.0
    left, right = [_row(row) for row in expected], [_row(row) for row in actual]
    if not (pairs := _column_pairs(left, right)):
        return 0.0, 0.0, 0.0
    columns = len(pairs) ** 2 / (len(left[0]) * len(right[0]))
    expected_rows = [tuple(row[i] for i, _ in pairs) for row in left]
    actual_rows = [tuple(row[j] for _, j in pairs) for row in right]
    hits = (
        sum(a == b for a, b in zip(expected_rows, actual_rows, strict=False))
        if ordered
        else _shared(expected_rows, actual_rows)
    )
    return columns, hits / len(right), hits / len(left)


def _shared(left: Sequence[Any], right: Sequence[Any]) -> int:
    """How many values both hold, each as often as it stands in both."""
    return (Counter(left) & Counter(right)).total()


def _column_pairs(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> list[tuple[int, int]]:
    """Each left column, in turn, with the free right column that shares most values with it, where one shares any."""
    theirs = list(enumerate(zip(*right, strict=True)))
    pairs: list[tuple[int, int]] = []
    for i, column in enumerate(zip(*left, strict=True)):
        free = [(_shared(column, other), -j) for j, other in theirs if j not in {used for _, used in pairs}]
        best, at = max(free, default=(0, 0))
        if best:
            pairs.append((i, -at))
    return pairs


def is_ordered(sql: str, dialect: str = "sqlite") -> bool:
    """True when the query's outermost rows come in an order that it asks for. Unreadable SQL counts as unordered."""
    query = _parsed(sql, dialect)
    return isinstance(query, exp.Query) and query.args.get("order") is not None


def reads_data(sql: str, dialect: str = "sqlite") -> bool:
    """False for a query that gives constants only, `SELECT 4` for example. Unreadable SQL counts as reading."""
    query = _parsed(sql, dialect)
    if not isinstance(query, exp.Query):
        return query is None
    computed = any(part.find(exp.Column, exp.Star, exp.AggFunc) for part in query.selects)
    return computed and query.find(exp.Table) is not None


def _parsed(sql: str, dialect: str) -> exp.Expr | None:
    try:
        return sqlglot.parse_one(sql, read=dialect)
    except (SqlglotError, RecursionError):
        return None


def _row(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_value(cell) for cell in row)


def _value(cell: Any) -> Any:
    """A form in which equal cells are equal: 0.1 + 0.2 and 0.3 are one value, 1 and 1.0 too."""
    if isinstance(cell, float):
        return float(f"{cell:.{DIGITS}g}" if abs(cell) < 10**DIGITS else f"{cell:.0f}")
    return cell.strip() if isinstance(cell, str) else cell


def column_orders(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> Iterator[tuple[int, ...]]:
    """Arrangements of the right columns in which each holds the same values as the left one in its place."""
    left_columns = [Counter(column) for column in zip(*left, strict=True)]
    right_columns = [Counter(column) for column in zip(*right, strict=True)]
    fits = [[i for i, values in enumerate(right_columns) if values == column] for column in left_columns]
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
