"""Execution match: are two result sets the same?

The rule: the same number of columns and the same rows, each as often. Names and order of columns do not matter (the
same columns must fit for all rows); the order of rows matters only where the reference query orders its outermost
rows. Numbers are equal in nine significant digits and in all before the point, texts without blanks at their ends;
NULL equals NULL; no text equals a number.
Guarantees: pure functions, in polynomial time for every input. Whether two tables are the same under some order of
rows and columns is as hard as whether two graphs are, so what is left when MAX_CELLS are looked at counts as different.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from sqlglot import exp

from sql_agent.scoring.data_read import parsed

DIGITS = 9
MAX_RESULT_ROWS = 10_000  # of a result that is compared as a whole
MAX_CELLS = 1_000_000  # of all rounds that tell columns apart, in distinct rows and columns; about two seconds
MIN_ROUNDS = 10  # of any result; two or three do where columns differ


def same_results(expected: Sequence[Sequence[Any]], actual: Sequence[Sequence[Any]], *, ordered: bool) -> bool:
    """True when the rows of `actual` are those of `expected` under the rule above."""
    if len(expected) != len(actual):
        return False
    if not expected:
        return True
    left, right = [_row(row) for row in expected], [_row(row) for row in actual]
    return len(left[0]) == len(right[0]) and same_rows(left, right, ordered=ordered)


def same_rows(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]], *, ordered: bool) -> bool:
    """Whether the rows, of as many columns, are the same under one order of the columns."""
    columns = [Counter(zip(*rows, strict=True)) for rows in (left, right)]
    if ordered or columns[0] == columns[1]:
        return columns[0] == columns[1]
    numbers: defaultdict[Any, int] = defaultdict(count().__next__)
    tables = [_table(side, numbers) for side in columns]
    n_cells = len(tables[0]) * len(columns[0])
    rounds = iter(range(max(MIN_ROUNDS, MAX_CELLS // n_cells)))
    return _fit(tables, [_first_colours(side) for side in columns], rounds)


def _first_colours(columns: Counter[tuple[Any, ...]]) -> list[int]:
    """By the values of each column and how often it stands; last, that of the number of times a row comes."""
    return [hash((n, frozenset(Counter(column).items()))) for column, n in columns.items()] + [0]


def _table(columns: Counter[tuple[Any, ...]], numbers: dict[Any, int]) -> list[tuple[int, ...]]:
    """The distinct rows of distinct columns, each cell as a number; last, how often the row comes."""
    rows = Counter(zip(*columns, strict=True))
    return [(*(numbers[cell] for cell in row), n) for row, n in rows.items()]


def _fit(tables: list[list[tuple[int, ...]]], colours: list[list[int]], rounds: Iterator[int]) -> bool:
    """Whether some order of the columns, each for one of its colour, makes the rows of both tables the same.

    Colours tell columns apart. Where they no longer become finer and some columns still share one, the first of these
    gets a colour of its own, in the other table each of them in turn. False too when the `rounds` are over.
    """
    n_colours = 0
    while n_colours < len(set(colours[0])) < len(colours[0]):
        if sorted(colours[0]) != sorted(colours[1]) or next(rounds, None) is None:
            return False
        n_colours = len(set(colours[0]))
        colours = _finer(tables, colours)
    if sorted(colours[0]) != sorted(colours[1]):
        return False
    shared = next((colour for colour, n in Counter(colours[0]).items() if n > 1), None)
    if shared is None:
        in_order = [sorted(range(len(side)), key=side.__getitem__) for side in colours]
        arranged = [
            {tuple(row[i] for i in order) for row in table} for order, table in zip(in_order, tables, strict=True)
        ]
        return arranged[0] == arranged[1]
    first = _alone(colours[0], colours[0].index(shared))
    others = (_alone(colours[1], at) for at, colour in enumerate(colours[1]) if colour == shared)
    return any(_fit(tables, [first, other], rounds) for other in others)


def _finer(tables: list[list[tuple[int, ...]]], colours: list[list[int]]) -> list[list[int]]:
    """Colours anew: rows are alike that hold the same values in columns of the same colours, and columns of one colour
    stay alike that hold the same values in rows that are alike.

    Sums of hashes stand for what is in any order: two that meet by chance tell less apart, never more.
    """
    finer: list[list[int]] = []
    for table, side in zip(tables, colours, strict=True):
        rows = [sum(map(hash, zip(side, row, strict=True))) for row in table]
        columns = zip(side, zip(*table, strict=True), strict=True)
        finer.append([hash((old, sum(map(hash, zip(rows, column, strict=True))))) for old, column in columns])
    return finer


def _alone(colours: list[int], at: int) -> list[int]:
    """The colours, with one that no other column has for that at `at`."""
    return [*colours[:at], -1, *colours[at + 1 :]]


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
        else _shared(Counter(expected_rows), Counter(actual_rows))
    )
    return columns, hits / len(right), hits / len(left)


def _shared(left: Counter[Any], right: Counter[Any]) -> int:
    """How many values both hold, each as often as it stands in both."""
    return sum(min(left[value], right[value]) for value in left.keys() & right.keys())


def _column_pairs(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> list[tuple[int, int]]:
    """Each left column, in turn, with the free right column that shares most values with it, where one shares any."""
    free = dict(enumerate(map(Counter, zip(*right, strict=True))))
    pairs: list[tuple[int, int]] = []
    for i, column in enumerate(map(Counter, zip(*left, strict=True))):
        shared = {j: _shared(column, other) for j, other in free.items()}
        best = max(shared, key=shared.__getitem__, default=None)
        if best is not None and shared[best]:
            pairs.append((i, best))
            del free[best]
    return pairs


def is_ordered(sql: str, dialect: str = "sqlite") -> bool:
    """True when the query's outermost rows come in an order that it asks for. Unreadable SQL counts as unordered."""
    query = parsed(sql, dialect)
    return isinstance(query, exp.Query) and query.args.get("order") is not None


def _row(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_value(cell) for cell in row)


def _value(cell: Any) -> Any:
    """A form in which equal cells are equal: 0.1 + 0.2 and 0.3 are one value, 1 and 1.0 too."""
    if isinstance(cell, float):
        return float(f"{cell:.{DIGITS}g}" if abs(cell) < 10**DIGITS else f"{cell:.0f}")
    return cell.strip() if isinstance(cell, str) else cell
