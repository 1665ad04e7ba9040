"""A training step on the bundled tables in DuckDB, PostgreSQL and MariaDB (with a password) is the step on SQLite's."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pymysql
import pytest

from foundation import run_folder
from foundation.files import read_lines
from sql_agent.config import DatabaseConfig, database_path
from sql_agent.data.bundled import ensure_bundled
from sql_agent.tiny_policy.build import ensure_tiny_policy
from tests import mariadb, postgres
from tests.drills.conftest import training

pytestmark = pytest.mark.slow
SECRET = "kept-1"
Run = Callable[..., Any]


def _copied(run: Run, many: Run, *, text: str, mark: str) -> None:
    with closing(sqlite3.connect(database_path(DatabaseConfig()))) as source:
        for table in ("drugs_info", "disease"):
            names = [row[1] for row in source.execute(f"PRAGMA table_info({table})")]
            run(f"CREATE TABLE {table} ({', '.join(f'{name} {text}' for name in names)})")
            rows = source.execute(f"SELECT * FROM {table}").fetchall()
            many(f"INSERT INTO {table} VALUES ({', '.join([mark] * len(names))})", rows)


@contextmanager
def _sqlite(_: Path) -> Iterator[list[str]]:
    yield []


@contextmanager
def _duckdb(folder: Path) -> Iterator[list[str]]:
    with duckdb.connect(folder / "medical.duckdb") as connection:
        _copied(connection.execute, connection.executemany, text="VARCHAR", mark="?")
    yield [f"database.url=duckdb:///{folder / 'medical.duckdb'}"]


@contextmanager
def _postgres(_: Path) -> Iterator[list[str]]:
    with postgres.server() as address:
        with psycopg.connect(address, autocommit=True) as connection, connection.cursor() as cursor:
            _copied(cursor.execute, cursor.executemany, text="text", mark="%s")
            cursor.execute("CREATE ROLE reader LOGIN")
            cursor.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
            host = connection.info.host
        yield [f"database.url=postgresql://reader@/postgres?host={host}"]


@contextmanager
def _mariadb(_: Path) -> Iterator[list[str]]:
    with mariadb.server() as socket:
        with (
            closing(pymysql.connect(unix_socket=str(socket), user="root", autocommit=True)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("CREATE DATABASE medical CHARACTER SET utf8mb4")
            cursor.execute("USE medical")
            _copied(cursor.execute, cursor.executemany, text="LONGTEXT", mark="%s")
            cursor.execute(f"CREATE USER reader@localhost IDENTIFIED BY '{SECRET}'")
            cursor.execute("GRANT SELECT ON medical.* TO reader@localhost")
        yield [f"database.url=mariadb://reader@localhost/medical?unix_socket={socket}"]


@pytest.mark.parametrize("database", [_duckdb, _postgres, _mariadb])
def test_a_step_is_that_of_sqlite(
    database: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_tiny_policy(1)
    ensure_bundled(DatabaseConfig().path)
    monkeypatch.setenv("DATABASE_PASSWORD", SECRET)
    found = []
    for name, made in (("sqlite", _sqlite), ("other", database)):
        with made(tmp_path) as where:
            settings = [part for one in [*where, "agent.system_prompt=system_short"] for part in ("--set", one)]
            with training(tmp_path / name / "runs", "--ci-fast", *settings) as run:
                text = run.end()
                assert run.process.returncode == 0, text
                rows = [row for row in read_lines(run.folder / run_folder.ROLLOUTS) if row["mode"] == "train"]
                calls = sorted((call["sql"], call["result"]["rows"]) for row in rows for call in row["sql_calls"])
                found.append((calls, sorted(row["reward"] for row in rows)))
                assert SECRET not in text and not [
                    file for file in run.folder.rglob("*.json*") if SECRET in file.read_text(encoding="utf-8")
                ]
    assert found[0] == found[1] and found[0][0]
