"""When are two result sets the same?"""

from __future__ import annotations

import random
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sql_agent.scoring.result_match import agreement, is_ordered, same_results

RING = [[int(c in (n, (n + 1) % 30)) for c in range(30)] for n in range(30)]
ROWS = st.integers(1, 4).flatmap(
    lambda width: st.lists(
        st.lists(
            st.one_of(st.none(), st.integers(-3, 3), st.sampled_from(["a", "b", ""])), min_size=width, max_size=width
        ),
        min_size=1,
        max_size=6,
    )
)


@pytest.mark.parametrize(
    ("wanted", "given_rows", "same"),
    [
        ([[1, "a"]], [["a", 1]], True),
        ([[1], [2]], [[2], [1]], True),
        ([[1], [1]], [[1]], False),
        ([[1], [1], [2]], [[1], [2], [2]], False),
        ([[1]], [[1, 2]], False),
        ([[1, 2]], [[1]], False),
        ([[0.3]], [[0.1 + 0.2]], True),
        ([[1]], [[1.0]], True),
        ([[12345678912]], [[12345678912.0]], True),
        ([[12345678912]], [[12345678912.000002]], True),
        ([[12345678912]], [[12345678913.0]], False),
        ([[1]], [["1"]], False),
        ([[None]], [[None]], True),
        ([[None]], [[""]], False),
        ([["头痛 "]], [["头痛"]], True),
        # Each column alone holds the same values, the rows do not.
        ([[1, 2], [2, 1]], [[1, 1], [2, 2]], False),
        ([], [], True),
        ([], [[1]], False),
    ],
)
def test_same_rows(wanted: list[list[Any]], given_rows: list[list[Any]], same: bool) -> None:
    assert same_results(wanted, given_rows, ordered=False) is same


@given(ROWS, st.randoms())
def test_order_of_rows_and_columns_does_not_matter(rows: list[list[Any]], rng: random.Random) -> None:
    columns = rng.sample(range(len(rows[0])), len(rows[0]))
    shuffled = [[row[i] for i in columns] for row in rng.sample(rows, len(rows))]
    assert same_results(rows, shuffled, ordered=False)
    assert same_results(rows, [[row[i] for i in columns] for row in rows], ordered=True)


@given(ROWS, ROWS)
def test_it_is_symmetric(left: list[list[Any]], right: list[list[Any]]) -> None:
    assert same_results(left, right, ordered=False) == same_results(right, left, ordered=False)


def test_an_asked_order_counts() -> None:
    assert not same_results([[1], [2]], [[2], [1]], ordered=True)
    assert same_results([[1], [2]], [[1], [2]], ordered=True)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ([[0] * 50], [[0] * 49 + [1]]),
        ([[n % 2] * 8 for n in range(10_000)], [*([n % 2] * 8 for n in range(9_999)), [1, 0] * 4]),
        (
            [[(n + c) % 2 for c in range(14)] for n in range(40)],
            [[(n + c // 2) % 2 for c in range(14)] for n in range(40)],
        ),
        # Each row and each column of both is like any other: triangles, and one ring of all.
        ([[int(c in (n, n - n % 3 + (n + 1) % 3)) for c in range(30)] for n in range(30)], RING),
    ],
)
def test_alike_columns_do_not_take_for_ever(wanted: list[list[int]], found: list[list[int]]) -> None:
    """Without an end these would go through all orders of the columns, 50! of them."""
    assert same_results(wanted, [row[::-1] for row in wanted[::-1]], ordered=False)
    assert not same_results(wanted, found, ordered=False)
    assert not same_results(wanted, found, ordered=True)


FLAGS = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 1), min_size=width, max_size=width), min_size=1, max_size=5)
)


@given(FLAGS, st.randoms(), st.integers(0, 2), st.booleans())
def test_it_is_what_trying_all_orders_finds(
    rows: list[list[int]], rng: random.Random, n_changes: int, ordered: bool
) -> None:
    columns = rng.sample(range(len(rows[0])), len(rows[0]))
    other = [[row[i] for i in columns] for row in rng.sample(rows, len(rows))]
    for _ in range(n_changes):
        rng.choice(other)[rng.randrange(len(columns))] ^= 1
    arrangements = ([[row[i] for i in order] for row in other] for order in permutations(range(len(columns))))
    by_force = any(a == rows if ordered else sorted(a) == sorted(rows) for a in arrangements)
    assert same_results(rows, other, ordered=ordered) is by_force


@pytest.mark.parametrize(
    ("sql", "ordered"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("SELECT a FROM t ORDER BY a LIMIT 3", True),
        ("SELECT a FROM t UNION SELECT b FROM u ORDER BY 1", True),
        ("WITH x AS (SELECT a FROM t) SELECT * FROM x ORDER BY a", True),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", False),
        ("SELECT row_number() OVER (ORDER BY a) FROM t", False),
        ("SELECT 'ORDER BY' FROM t", False),
        ("this is no SQL (", False),
    ],
)
def test_where_an_order_is_asked(sql: str, ordered: bool) -> None:
    assert is_ordered(sql) is ordered


def test_the_parts_of_agreement() -> None:
    wanted = [("a", 1), ("b", 2), ("c", 3)]
    assert agreement(wanted, wanted, ordered=True) == (1.0, 1.0, 1.0)
    assert agreement(wanted, [*wanted, ("d", 4)], ordered=False) == (1.0, 0.75, 1.0)
    assert agreement(wanted, wanted[:2], ordered=False) == (1.0, 1.0, 2 / 3)
    assert agreement(wanted, [("a",), ("b",), ("c",)], ordered=False) == (0.5, 1.0, 1.0)
    assert agreement(wanted, wanted[::-1], ordered=True) == (1.0, 1 / 3, 1 / 3)
    assert agreement(wanted, [("x", 9)], ordered=False) == agreement(wanted, [], ordered=False) == (0.0, 0.0, 0.0)
