"""Does a query's result come from the data?"""

from __future__ import annotations

import pytest

from sql_agent.scoring.data_read import reads_data

NAMES = {"id", "name", "seeds", "seed_index"}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM seeds WHERE id > 5",
        "SELECT CASE WHEN COUNT(*) > 3 THEN 1 ELSE 0 END FROM seeds",
        "SELECT CASE WHEN EXISTS (SELECT 1 FROM seeds) THEN 'yes' ELSE 'no' END",
        "SELECT EXISTS (SELECT 1 FROM seeds WHERE id = 3)",
        "SELECT COUNT(*) > 3 FROM seeds",
        "SELECT SUM(1) FROM seeds",
        "SELECT 5 IN (SELECT id FROM seeds)",
        "SELECT id FROM seeds WHERE id=1 UNION SELECT id FROM seeds",
        "SELECT id FROM seeds EXCEPT SELECT 5",
        "WITH t AS (SELECT * FROM seeds) SELECT id FROM t",
        "WITH t(a) AS (SELECT id FROM seeds) SELECT a FROM t",
        "WITH t AS (SELECT 1 FROM seeds WHERE id>3) SELECT COUNT(*) FROM t",
        "SELECT (SELECT MAX(id) FROM seeds) - (SELECT MIN(id) FROM seeds)",
        "SELECT ROUND(100.0*SUM(CASE WHEN id>5 THEN 1 ELSE 0 END)/COUNT(*), 1) FROM seeds",
        "SELECT COALESCE(SUM(id), 0) FROM seeds",
        "SELECT id, ROW_NUMBER() OVER (ORDER BY id) FROM seeds",
        "SELECT RANK() OVER (ORDER BY id) FROM seeds",
        "SELECT NTILE(4) OVER (ORDER BY id) FROM seeds",
        "SELECT LAG(id) OVER (ORDER BY id) FROM seeds",
        "SELECT s.* FROM seeds s JOIN seeds b ON s.id=b.id",
        'SELECT "id" FROM seeds',
        "SELECT [id] FROM seeds",
        "SELECT `id` FROM seeds",
        "SELECT rowid FROM seeds",
        "SELECT \"ID\" AS x, 'a' FROM seeds",
        "SELECT id || ' kg' FROM seeds",
        "SELECT 'n: ' || COUNT(*) FROM seeds",
        "SELECT -id FROM seeds",
        "SELECT DISTINCT id FROM seeds",
        "SELECT (SELECT b.id FROM seeds b WHERE b.id = a.id) FROM seeds a",
        "SELECT (SELECT a.id) FROM seeds a",
        "WITH RECURSIVE c(id, d) AS (SELECT id, 0 FROM seeds UNION ALL SELECT s.id, d+1 FROM seeds s JOIN c"
        " ON s.id=c.id) SELECT MAX(d) FROM c",
        "SELECT x FROM (SELECT id AS x, 4 AS y FROM seeds)",
        "SELECT * FROM (SELECT id, 4 AS y FROM seeds)",
        "SELECT count(*) FROM (seeds JOIN seeds b)",
        "SELECT total(id) FROM seeds",
        "SELECT group_concat(id) FROM seeds",
        "SELECT j.value FROM seeds, json_each(seeds.id) AS j",
        "SELECT highlight(seed_index, 0, '<', '>') FROM seed_index('gentian') ORDER BY rank",
        "SELECT strftime('%Y', id) FROM seeds",
        "SELECT id % 2 = 0 FROM seeds",
        "SELECT NOT EXISTS (SELECT 1 FROM seeds)",
        "SELECT MAX(id, 3) FROM seeds",
        "SELECT n FROM (SELECT COUNT(*) AS n FROM seeds GROUP BY id) ORDER BY n",
        'SELECT "n" FROM (SELECT COUNT(*) AS n FROM seeds GROUP BY id)',
        'WITH w AS (SELECT "id" AS "k" FROM seeds) SELECT "k" FROM w',
        "SELECT iif(id > 3, 'a', 'b') FROM seeds",
        "SELECT ((SELECT COUNT(*) FROM seeds))",
        "SELECT (COUNT(*)) FROM seeds",
        "SELECT 2*COUNT(*) FROM seeds",
        "SELECT nothing (( FROM",
        "SELECT COUNT(*) FROM t",
        "SELECT a FROM t",
        "SELECT * FROM t",
    ],
)
def test_what_is_read_or_counted_is_data(sql: str) -> None:
    assert reads_data(sql, "sqlite", NAMES)


@pytest.mark.parametrize(
    "sql",
    [
        "WITH t AS (SELECT 513 AS a) SELECT a FROM t",
        "WITH t(a) AS (VALUES (513)) SELECT a FROM t",
        "WITH t(a) AS (SELECT 513 FROM seeds) SELECT a FROM t",
        "SELECT a FROM (SELECT 513 AS a FROM seeds)",
        "SELECT * FROM (SELECT 513 AS a)",
        "SELECT t.* FROM (SELECT 513 AS a) AS t",
        "SELECT MAX(513) FROM seeds",
        "SELECT MAX(513+0*id) FROM seeds",
        "SELECT AVG(513) FROM seeds",
        "SELECT 513+0*COUNT(*) FROM seeds",
        "SELECT 513+COUNT(*)-COUNT(*) FROM seeds",
        "SELECT 513*COUNT(*)/COUNT(*) FROM seeds",
        "SELECT ROUND(513+0*MAX(id)) FROM seeds",
        "SELECT CAST(513+0*COUNT(*) AS INT) FROM seeds",
        "SELECT (SELECT 513 FROM seeds LIMIT 1)",
        "SELECT COALESCE(513, id) FROM seeds",
        "SELECT CASE WHEN COUNT(*) > 1 THEN 513 ELSE 512+1 END FROM seeds",
        "SELECT IIF(COUNT(*) > 1, 513, 513) FROM seeds",
        "SELECT id FROM seeds WHERE 0 UNION ALL SELECT 513",
        "SELECT 513 UNION ALL SELECT id FROM seeds WHERE 0",
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c WHERE n<513) SELECT MAX(n) FROM c",
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c WHERE n<513) SELECT COUNT(*) FROM c",
        "SELECT value FROM json_each('[513]')",
        'SELECT "Alice" FROM seeds LIMIT 1',
        "SELECT MAX(513) OVER () FROM seeds",
        "SELECT x.a FROM seeds, (SELECT 513 AS a) AS x",
        "WITH a AS (SELECT 513 AS n), b AS (SELECT n FROM a) SELECT n AS z FROM b",
        "SELECT 4 FROM seeds LIMIT 1",
        "SELECT 'yes' WHERE EXISTS (SELECT 1 FROM seeds)",
        "SELECT 1 WHERE 1=1",
        "SELECT 4",
        "SELECT 4 FROM t LIMIT 1",
        "VALUES (4)",
        "SELECT COUNT(*)",
        "SELECT *",
        "SELECT MAX(4)",
        "SELECT '高血压' AS indication",
    ],
)
def test_what_the_query_says_itself_is_no_data(sql: str) -> None:
    assert not reads_data(sql, "sqlite", NAMES)


@pytest.mark.parametrize("dialect", ["postgres", "duckdb", "mysql"])
def test_other_databases_are_read_alike(dialect: str) -> None:
    assert reads_data("SELECT EXTRACT(YEAR FROM d), CAST(d AS DATE) FROM t", dialect)
    assert reads_data("SELECT COUNT(*) FILTER (WHERE a > 5) FROM t", dialect)
    assert reads_data("SELECT s.t.a FROM s.t", dialect)
    assert not reads_data("SELECT CAST(513 + 0 * COUNT(*) AS INT) FROM t", dialect)
    assert not reads_data("WITH t AS (SELECT 513 AS a) SELECT a FROM t", dialect)


def test_names_in_double_quotes_are_columns_where_the_columns_are_not_known() -> None:
    assert reads_data('SELECT "Alice" FROM seeds')


def test_parts_that_many_others_read_are_looked_at_once() -> None:
    """Without that these take twice as long for each level."""
    nested = "abs(" * 30 + "1" + ")" * 30
    steps = "".join(f", a{n} AS (SELECT x + x AS x FROM a{n - 1})" for n in range(1, 30))
    assert not reads_data(f"SELECT {nested} FROM seeds")
    assert not reads_data(f"WITH a0 AS (SELECT 1 AS x FROM seeds){steps} SELECT x FROM a29")
