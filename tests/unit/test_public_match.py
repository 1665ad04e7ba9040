"""Execution accuracy by the public rules, on pairs written for this test."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sql_agent.config import DatabaseConfig, RewardConfig
from sql_agent.records import Episode, Question, Score, SqlCall
from sql_agent.scoring.build import build_context
from sql_agent.scoring.public_match import bird_equal, spider_equal, spider_query
from sql_agent.scoring.registry import SCORERS, ScoringContext
from sql_agent.scoring.scorers import PUBLIC

ORDERED, FREE = "SELECT a FROM t ORDER BY a", "SELECT a FROM t"
# reference query, its rows, the given rows -> equal by BIRD, equal by Spider
PAIRS: list[tuple[str, list[Any], list[Any], bool, bool]] = [
    (FREE, [[1], [2]], [[2], [1]], True, True),
    (ORDERED, [[1], [2]], [[2], [1]], True, False),
    ("SELECT a FROM (SELECT a FROM t order by a)", [[1], [2]], [[2], [1]], True, False),
    (FREE, [[1], [1], [2]], [[1], [2]], True, False),
    (FREE, [[1], [1], [2]], [[1], [2], [2]], True, False),
    (FREE, [[1, "x"]], [["x", 1]], False, True),
    (FREE, [[1, 2], [2, 1]], [[2, 1], [1, 2]], True, True),
    (FREE, [[1, 2], [3, 4]], [[1, 4], [3, 2]], False, False),
    (FREE, [[1]], [[1, 1]], False, False),
    (FREE, [], [], True, True),
    (FREE, [], [[None]], False, False),
    (FREE, [[None]], [], False, False),
    (FREE, [[1]], [[1.0]], True, True),
    (FREE, [[0.3]], [[0.1 + 0.2]], False, False),
    (FREE, [["1"]], [[1]], False, False),
    (FREE, [["a "]], [["a"]], False, False),
    (FREE, [[None, 1]], [[1, None]], False, True),
]


@pytest.mark.parametrize(("sql", "wanted", "given", "bird", "spider"), PAIRS)
def test_pairs(sql: str, wanted: list[Any], given: list[Any], bird: bool, spider: bool) -> None:
    assert bird_equal(wanted, given, reference=sql) is bird
    assert spider_equal(wanted, given, reference=sql) is spider


@pytest.mark.parametrize(
    ("sql", "run"),
    [
        ("SELECT DISTINCT a FROM t", "SELECT  a FROM t"),
        ("SELECT count(distinct a), 'distinct x' FROM t", "SELECT count( a), 'distinct x' FROM t"),
        ('SELECT "distinct", distinction FROM t', 'SELECT "distinct", distinction FROM t'),
        ("SELECT a FROM t WHERE a > = 1 AND b ! = 2", "SELECT a FROM t WHERE a >= 1 AND b != 2"),
        ("SELECT year(CURDATE()) - a FROM t", "SELECT 2020- a FROM t"),
    ],
)
def test_a_query_as_spider_runs_it(sql: str, run: str) -> None:
    assert spider_query(sql) == run


@pytest.fixture
def context(tmp_path: Path) -> Iterator[ScoringContext]:
    path = tmp_path / "shop" / "shop.sqlite"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE item (name TEXT, price REAL)")
        db.executemany("INSERT INTO item VALUES (?, ?)", [("cup", 2.5), ("cup", 2.5), ("tea", 1.0)] * 30)
    made = build_context(RewardConfig(), DatabaseConfig(folder=str(tmp_path), max_rows=5))
    yield made
    made.close()


def scored(context: ScoringContext, scorer: str, reference: str, *asked: str) -> Score:
    question = Question(id="q", question="?", db_id="shop", sql=[reference])
    database = context.database_of("shop")
    assert database
    calls = [SqlCall(sql=sql, result=database.query_sync(sql)) for sql in asked]
    found: Any = PUBLIC[scorer](question, Episode(question=question, sql_calls=calls), context)
    return asyncio.run(found)


RUN = [
    ("SELECT name FROM item", "SELECT DISTINCT name FROM item", 1.0, 1.0),
    ("SELECT DISTINCT name, price FROM item", "SELECT price, name FROM item", 0.0, 1.0),
    ("SELECT name FROM item WHERE price > 9", "SELECT price FROM item WHERE price > 9", 1.0, 1.0),
    ("SELECT count(*) FROM item", "SELECT 90", 1.0, 1.0),
    ("SELECT count(*) FROM item", "SELECT count(*) FROM items", 0.0, 0.0),
    ("SELECT name FROM item", "SELECT name FROM item LIMIT 89", 1.0, 0.0),
]


@pytest.mark.parametrize(("reference", "asked", "bird", "spider"), RUN)
def test_both_queries_run_whole(
    context: ScoringContext, reference: str, asked: str, bird: float, spider: float
) -> None:
    assert scored(context, "bird_execution", reference, asked).value == bird
    assert scored(context, "spider_execution", reference, asked).value == spider


@pytest.mark.parametrize("scorer", PUBLIC)
def test_the_last_query_that_ran_is_the_prediction(context: ScoringContext, scorer: str) -> None:
    right, wrong, broken = "SELECT name FROM item", "SELECT price FROM item", "SELECT nam FROM item"
    assert scored(context, scorer, right, wrong, right).value == 1.0
    assert scored(context, scorer, right, right, wrong).value == 0.0
    assert scored(context, scorer, right, right, broken).value == 1.0
    assert scored(context, scorer, right, broken).value == scored(context, scorer, right).value == 0.0


@pytest.mark.parametrize("scorer", PUBLIC)
def test_a_reference_that_fails_is_nobodys_mistake(context: ScoringContext, scorer: str) -> None:
    assert scored(context, scorer, "SELECT nam FROM item", "SELECT 1").unscored == "bad_reference_query"
    assert SCORERS[scorer] is PUBLIC[scorer]
    alone = ScoringContext(RewardConfig(), "none")
    question = Question(id="q", question="?", sql=["SELECT 1"])
    found: Any = PUBLIC[scorer](question, Episode(question=question, sql_calls=[]), alone)
    assert asyncio.run(found).unscored == "no_database"
