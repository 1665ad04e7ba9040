"""Questions, recipe and tiny policy's demonstrations for DuckDB, PostgreSQL and MariaDB."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pymysql
import pytest

from foundation.errors import UserError
from sql_agent.commands import mine as command
from sql_agent.config import build_config, load_recipe
from sql_agent.mining.asks import KINDS
from sql_agent.mining.questions import Mined, database_of, mine_questions
from sql_agent.mining.recipe import write_recipe
from sql_agent.mining.schema import Schema, read_schema
from sql_agent.mining.state import begin, save
from sql_agent.mining.tiny import TableTeacher
from tests.postgres import new_database
from tests.unit.test_mining import made_database

SIZES = {"train": 120, "val": 12, "test": 30, "test_wordings": 30, "test_tables": 20}
DDL = """
CREATE TABLE harbours (code VARCHAR(80) PRIMARY KEY, "harbour name" VARCHAR(80), sea VARCHAR(80), depth REAL,
    opened DATE);
CREATE TABLE boats (id INTEGER PRIMARY KEY, name VARCHAR(80), "builtYear" INT, crew INT, note TEXT, mast BLOB);
CREATE TABLE sailors (id INTEGER PRIMARY KEY, name VARCHAR(80), boat_id INT, "rank" VARCHAR(80), paid DECIMAL(9, 2),
    chief INT, UNIQUE (boat_id, id), FOREIGN KEY (boat_id) REFERENCES boats (id),
    FOREIGN KEY (chief) REFERENCES sailors (id));
CREATE TABLE "order" (id INTEGER PRIMARY KEY, "from" VARCHAR(80), "to" VARCHAR(80), boat_id INT, "group" VARCHAR(80),
    weight INT, "at" TIMESTAMP, FOREIGN KEY ("from") REFERENCES harbours (code),
    FOREIGN KEY ("to") REFERENCES harbours (code), FOREIGN KEY (boat_id) REFERENCES boats (id));
CREATE TABLE shifts (id INTEGER PRIMARY KEY, boat INT, sailor INT, "hour" INT,
    FOREIGN KEY (boat, sailor) REFERENCES sailors (boat_id, id));
CREATE VIEW heavy AS SELECT id AS order_no, weight, "at" FROM "order" WHERE weight > 300
"""
TABLES = ("harbours", "boats", "sailors", "order", "shifts")


def _filled(path: Path, run: Callable[..., Any], quote: str, mark: str, blob: str = "BLOB") -> None:
    """The tables of ships.db through `run(sql, values)`."""
    made_database(path)
    for line in DDL.replace('"', quote).replace("BLOB", blob).split(";"):
        run(line, ())
    with closing(sqlite3.connect(path)) as source:
        rows = {name: source.execute(f'SELECT * FROM "{name}"').fetchall() for name in TABLES[:-1]}
    rows["boats"] = [(*row[:-1], bytes([row[0]])) for row in rows["boats"]]
    rows["shifts"] = [(n, row[2], row[0], n % 24) for n, row in enumerate(rows["sailors"][:40])]
    for name, cells in rows.items():
        for row in cells:
            run(f"INSERT INTO {quote}{name}{quote} VALUES ({', '.join([mark] * len(row))})", row)


def _duckdb(_: pytest.FixtureRequest, folder: Path) -> str:
    with duckdb.connect(folder / "ships.duckdb") as connection:
        _filled(folder / "ships.db", connection.execute, '"', "?")
    return f"duckdb:///{folder / 'ships.duckdb'}"


def _postgres(request: pytest.FixtureRequest, folder: Path) -> str:
    address = new_database(request.getfixturevalue("postgres"))
    with psycopg.connect(address, autocommit=True) as connection:
        _filled(folder / "ships.db", connection.execute, '"', "%s", "BYTEA")
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'miner'").fetchall():
            connection.execute("CREATE ROLE miner LOGIN")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO miner")
        return f"postgresql://miner@/{connection.info.dbname}?host={connection.info.host}"


def _mariadb(request: pytest.FixtureRequest, folder: Path) -> str:
    socket = request.getfixturevalue("mariadb")
    about = {"unix_socket": str(socket), "user": "root", "autocommit": True}
    with closing(pymysql.connect(**about)) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS ships")
        cursor.execute("USE ships")
        _filled(folder / "ships.db", cursor.execute, "`", "%s")
        cursor.execute("CREATE USER IF NOT EXISTS miner")
        cursor.execute("GRANT SELECT ON ships.* TO miner")
    return f"mariadb://miner@localhost/ships?unix_socket={socket}"


@pytest.fixture(scope="module", params=[_duckdb, _postgres, _mariadb])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return request.param(request, tmp_path_factory.mktemp("ships"))


@pytest.fixture(scope="module")
def schema(url: str) -> Schema:
    return read_schema(url)


@pytest.fixture(scope="module")
def mined(schema: Schema, url: str) -> Mined:
    return mine_questions(schema, url, language="en", seed=1, sizes=SIZES)


def test_tables_views_roles_and_links_are_read(schema: Schema) -> None:
    roles = {f"{table.name}.{column.name}": column.role for table in schema.tables for column in table.columns}
    expected = {"harbours.sea": "category", "harbours.opened": "date", "order.at": "date", "boats.builtYear": "year"}
    expected |= {"sailors.paid": "number", "sailors.rank": "category", "boats.note": "long", "order.from": "key"}
    expected |= {"boats.mast": "long"}
    assert {name: roles[name] for name in expected} == expected
    assert {table.name for table in schema.tables if table.is_view} == {"heavy"}
    assert {(link.table, link.columns, link.parent) for link in schema.links} >= {
        ("sailors", ("chief",), "sailors"),
        ("order", ("from",), "harbours"),
        ("shifts", ("boat", "sailor"), "sailors"),
    }
    assert schema.table("boats").ident == "name"


def test_questions_of_every_kind_are_asked_and_their_answers_are_those_of_the_database(
    schema: Schema, url: str, mined: Mined
) -> None:
    assert {name: len(found) for name, found in mined.splits.items()} == SIZES
    kinds = {question.task_type for found in mined.splits.values() for question in found}
    assert {kind for kind in KINDS if kind not in kinds} <= {"without", "both", "most"}  # these have few
    assert mined.dropped["a query that fails"] == 0
    with database_of(schema, url) as database:
        for question in mined.splits["test"]:
            assert database.query_sync(question.sql[0]).rows, question.sql


def test_the_same_database_gives_the_same_questions(schema: Schema, url: str, mined: Mined) -> None:
    again = mine_questions(read_schema(url), url, language="en", seed=1, sizes=SIZES)
    assert again == mined


def test_a_recipe_names_the_url_and_the_dialect(schema: Schema, url: str, mined: Mined, tmp_path: Path) -> None:
    settled = command.settle(url, language="en", seed=1, questions=120, tables=[], model="")
    state = begin(tmp_path / "r", settled)
    write_recipe(tmp_path / "r", schema, mined, settled, gpu=False)
    save(tmp_path / "r", state)
    config = build_config(load_recipe(str(tmp_path / "r")))
    assert (config.database.url, config.database.dialect) == (settled.database, schema.dialect)
    assert "SQLite" not in (tmp_path / "r" / "prompt.txt").read_text()
    assert settled.name == "ships" or url.startswith("postgresql")


def test_demonstrations_are_queries_that_the_database_takes(schema: Schema, url: str) -> None:
    settled = command.settle(url, language="en", seed=1, questions=120, tables=[], model="")
    refused: list[str] = []
    with database_of(schema, url) as database:
        for seed in range(150):
            draft = TableTeacher(random.Random(seed), seed % 2 == 0, schema, settled, "p")._draft()
            result = database.query_sync(draft.sql)
            refused += [f"{draft.sql}: {result.error}"] if result.error else []
            assert result.error or [*(draft.records or [{}])[0]] in ([], result.columns)
    assert refused == []


def test_what_is_no_address_is_told() -> None:
    with pytest.raises(UserError, match="no such file; name a SQLite file, or a URL"):
        command.settle("duckdb:///none.duckdb", language="en", seed=1, questions=24, tables=[], model="")
    with pytest.raises(UserError, match="oracle is none of"):
        read_schema("oracle://a/b")
    with pytest.raises(UserError, match="holds a password"):
        read_schema("postgresql://a:b@127.0.0.1/c")
