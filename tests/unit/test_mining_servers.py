"""Questions, recipe and tiny policy's demonstrations for DuckDB, PostgreSQL and MariaDB; names and types of theirs."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pymysql
import pytest
import sqlglot

from foundation.errors import UserError
from sql_agent.commands import mine as command
from sql_agent.config import build_config, database_place, load_recipe
from sql_agent.environment.database import Database
from sql_agent.environment.sql_text import KEYWORDS
from sql_agent.environment.sql_worker import quoted as always_quoted
from sql_agent.mining.asks import KINDS, Ask, Query, said_in
from sql_agent.mining.questions import Mined, database_of, mine_questions
from sql_agent.mining.recipe import write_recipe
from sql_agent.mining.schema import Schema, config_of, literal, quoted, read_schema
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
Run = Callable[..., Any]
GARAGE = """
CREATE TABLE Kunde (KundenNr INT UNSIGNED PRIMARY KEY, Name VARCHAR(60) UNIQUE, Punkte BIT(10), Extras JSON,
    Telefon BIGINT UNSIGNED);
CREATE TABLE kunde (id INT PRIMARY KEY, alt VARCHAR(20));
CREATE TABLE Einsatz (Nr INT PRIMARY KEY, Beginn TIME, Lohn DECIMAL(9, 2), Art ENUM('Ölwechsel', 'TÜV'),
    Baujahr YEAR, Fertig DATETIME, `offset` SMALLINT UNSIGNED, `a``b` INT, KundenNr INT UNSIGNED,
    FOREIGN KEY (KundenNr) REFERENCES Kunde (KundenNr));
CREATE VIEW kaputt AS SELECT Nr, `a``b` FROM Einsatz
"""


def _filled(path: Path, run: Run, quote: str, mark: str, blob: str = "BLOB") -> None:
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


@contextmanager
def owned(kind: str, request: pytest.FixtureRequest, folder: Path, name: str) -> Iterator[tuple[Run, str]]:
    """What runs a statement in a database of its owner, and the place that its reader names."""
    if kind == "sqlite":
        with closing(sqlite3.connect(folder / name, autocommit=True)) as connection:
            yield connection.execute, str(folder / name)
    elif kind == "duckdb":
        with duckdb.connect(folder / name) as connection:
            yield connection.execute, f"duckdb:///{folder / name}"
    elif kind == "postgres":
        address = new_database(request.getfixturevalue("postgres"))
        with psycopg.connect(address, autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'miner'").fetchall():
                connection.execute("CREATE ROLE miner LOGIN")
            yield connection.execute, f"postgresql://miner@/{connection.info.dbname}?host={connection.info.host}"
            connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO miner")
    else:
        socket = request.getfixturevalue("mariadb")
        about = {"unix_socket": str(socket), "user": "root", "autocommit": True, "charset": "utf8mb4"}
        with closing(pymysql.connect(**about)) as connection, connection.cursor() as cursor:
            for line in (f"CREATE DATABASE {name}", f"USE {name}", "CREATE USER IF NOT EXISTS miner"):
                cursor.execute(line)
            cursor.execute(f"GRANT SELECT ON {name}.* TO miner")
            yield cursor.execute, f"mariadb://miner@localhost/{name}?unix_socket={socket}"


@pytest.fixture(scope="module", params=["duckdb", "postgres", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("ships")
    with owned(request.param, request, folder, "ships") as (run, place):
        quote, mark = "`" if request.param == "mariadb" else '"', "?" if request.param == "duckdb" else "%s"
        _filled(folder / "ships.db", run, quote, mark, "BYTEA" if request.param == "postgres" else "BLOB")
    return place


@pytest.fixture(scope="module")
def schema(url: str) -> Schema:
    return read_schema(url)


@pytest.fixture(scope="module")
def mined(schema: Schema, url: str) -> Mined:
    return mine_questions(schema, url, language="en", seed=1, sizes=SIZES)


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.fixture(scope="module")
def garage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What MariaDB has that the others lack."""
    with owned("mariadb", request, tmp_path_factory.mktemp("garage"), "garage") as (run, place):
        for line in GARAGE.split(";"):
            run(line)
        for n in range(60, 0, -1):
            row = (n, f"Müller 🚗 O'{n}", n.to_bytes(2, "big"), f'{{"n": {n}}}', 49_221_000_000 + 7919 * n)
            run("INSERT INTO Kunde VALUES (%s, %s, %s, %s, %s)", row)
            run("INSERT INTO kunde VALUES (%s, %s)", (n, f"alt {n}"))
            day = f"2024-05-{1 + n % 28:02d} 07:08:09"
            row = (n, f"{n // 2}:30:00", n + n / 4, ("Ölwechsel", "TÜV")[n % 2], 1990 + n % 20, day, 7, n, max(n, 52))
            run(f"INSERT INTO Einsatz VALUES ({', '.join(['%s'] * len(row))})", row)
        run("ALTER TABLE Einsatz CHANGE `a``b` `c``d` INT")  # which the view still names
    return place


def test_types_of_mariadb_have_roles_by_their_values(garage: str) -> None:
    schema = read_schema(garage)
    columns = {f"{table.name}.{column.name}": column for table in schema.tables for column in table.columns}
    expected = {"Kunde.Punkte": "number", "Kunde.Extras": "long", "Kunde.Telefon": "code", "Einsatz.Beginn": "text"}
    expected |= {
        "Einsatz.Lohn": "number",
        "Einsatz.Art": "category",
        "Einsatz.Baujahr": "year",
        "Einsatz.c`d": "number",
    }
    expected |= {"Einsatz.Fertig": "date", "Einsatz.offset": "flag", "Einsatz.KundenNr": "key"}
    assert {name: columns[name].role for name in expected} == expected
    assert columns["Einsatz.Beginn"].samples[:2] == ("00:30:00", "01:30:00")
    assert (columns["Kunde.Punkte"].samples[0], columns["Kunde.Telefon"].label) == (1, "Telefon")
    assert schema.table("Kunde").ident == "Name" and schema.table("kunde").n_rows == 60
    assert {table.name for table in schema.tables} == {"Kunde", "kunde", "Einsatz"}  # a view that fails is none


def test_values_of_mariadb_find_their_rows(garage: str) -> None:
    schema = read_schema(garage)
    with database_of(schema, garage) as database:
        for table in schema.tables:
            for column in table.columns:
                for value in column.samples[:9]:
                    found = database.query_sync(f"SELECT 1 FROM {table.sql} WHERE {column.sql} = {literal(value)}")
                    assert found.rows, (table.name, column.name, value, found.error)
        other = database.query_sync("SELECT alt FROM kunde WHERE id = 3")
    assert other.rows == [["alt 3"]]  # and not of Kunde


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "postgres", "mariadb"])
def test_every_word_of_sql_and_odd_texts_can_be_names(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Names of columns: what the lists of reserved words have, what the tree's reader knows, and worse."""
    from sqlalchemy.dialects.mysql.reserved_words import RESERVED_WORDS_MARIADB, RESERVED_WORDS_MYSQL
    from sqlalchemy.dialects.postgresql.base import RESERVED_WORDS

    known = {*KEYWORDS, *RESERVED_WORDS, *RESERVED_WORDS_MYSQL, *RESERVED_WORDS_MARIADB}
    for name in ("sqlite", "duckdb", "postgres", "mysql"):
        known |= set(sqlglot.Dialect.get_or_raise(name).tokenizer_class.KEYWORDS)
    odd = ["a$b", "2nd", "a`b", 'a"b', "a'b", "a.b", "groß", "A", "a b", "a\\b", "a%b", "x:y", "€", "车"]
    words = [*sorted({word.lower() for word in known if re.fullmatch(r"\w+", word)}), *odd]
    dialect = "mysql" if kind == "mariadb" else kind
    tables = {f"t{at}": words[at : at + 25] for at in range(0, len(words), 25)}
    with owned(kind, request, tmp_path, "words") as (run, place):
        for table, names in tables.items():
            columns = [always_quoted(name, dialect) for name in names]
            run(f"CREATE TABLE {table} ({', '.join(f'{column} INT' for column in columns)})")
            run(f"INSERT INTO {table} VALUES ({', '.join(map(str, range(len(names))))})")
    config = config_of(place, tables=[])
    with Database(config, database_place(config)) as database:
        for table, names in tables.items():
            own = [quoted(name, dialect) for name in names]
            where = " AND ".join(f"T1.{name} = {at}" for at, name in enumerate(own))
            sql = f"SELECT {', '.join(own)} FROM {table} AS T1 WHERE {where} ORDER BY T1.{own[0]}"
            asked = said_in(dialect, Ask("lookup", {}, Query(sql, tuple((name, None) for name in names)), frozenset()))
            result = database.query_sync(asked.query.sql)
            assert (result.columns, result.rows) == (names, [[*range(len(names))]]), (result.error, names)


def test_what_is_no_address_is_told() -> None:
    with pytest.raises(UserError, match="no such file; name a SQLite file, or a URL"):
        command.settle("duckdb:///none.duckdb", language="en", seed=1, questions=24, tables=[], model="")
    with pytest.raises(UserError, match="oracle is none of"):
        read_schema("oracle://a/b")
    with pytest.raises(UserError, match="holds a password"):
        read_schema("postgresql://a:b@127.0.0.1/c")
