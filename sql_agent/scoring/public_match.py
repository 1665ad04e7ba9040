"""Execution accuracy by the public rules of BIRD and Spider: is a predicted query's result the reference's?

Written from what the published programs do (BIRD's evaluation, Spider's test-suite-sql-eval with one database and
without plugged values), so that figures compare. They are laxer than `result_match.py`: an empty result equals an empty
one, BIRD forgets how often a row comes, Spider leaves DISTINCT out of both queries before they run. For a reward they
are easier to game; `sql_result` is the rule for training.
Guarantees: pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from sql_agent.scoring.result_match import same_rows

Rows = Sequence[Sequence[Any]]
# What stands in quotes or comments is left as it is.
_PIECES = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | --[^\n]* | /\*.*?(?:\*/|\Z) | \bDISTINCT\b""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
_THIS_YEAR = re.compile(r"YEAR\s*\(\s*CURDATE\s*\(\s*\)\s*\)\s*", re.IGNORECASE)
_SPACED = re.compile(r"([<>!]) =")


def bird_equal(expected: Rows, actual: Rows, *, reference: str) -> bool:
    """The same set of rows, columns in the same order; how often and in which order rows come does not matter."""
    return set(map(tuple, expected)) == set(map(tuple, actual))


def spider_query(sql: str) -> str:
    """The query as Spider's test suite runs it: `> =` mended, without DISTINCT, the current year being 2020."""
    plain = _PIECES.sub(lambda m: "" if m[0].upper() == "DISTINCT" else m[0], _SPACED.sub(r"\1=", sql))
    return _THIS_YEAR.sub("2020", plain)


def spider_equal(expected: Rows, actual: Rows, *, reference: str) -> bool:
    """The same rows, each as often, under one order of the columns; in the same order of rows where the reference has
    ORDER BY anywhere. Nothing equals nothing, whatever its columns.
    """
    if not expected or not actual or len(expected) != len(actual) or len(expected[0]) != len(actual[0]):
        return not expected and not actual
    left, right = list(map(tuple, expected)), list(map(tuple, actual))
    is_ordered = "order by" in spider_query(reference).lower()
    # The published first look: rows with their cells sorted as text. It parts (1, 10) from (1.0, 10), which are equal
    # as numbers and sort differently.
    sides = [[tuple(sorted(row, key=lambda cell: f"{cell}{type(cell)}")) for row in side] for side in (left, right)]
    same_sorted = sides[0] == sides[1] if is_ordered else set(sides[0]) == set(sides[1])
    return same_sorted and same_rows(left, right, ordered=is_ordered)


# Scorer -> how a query is run (BIRD's as it is), and when two results are the same.
RULES: dict[str, tuple[Callable[[str], str], Callable[..., bool]]] = {
    "bird_execution": (str, bird_equal),
    "spider_execution": (spider_query, spider_equal),
}
