"""Questions mined of a database: its schema is read as it is, every reference is right, nothing held out is shown."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shlex
import sqlite3
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foundation.errors import UserError
from sql_agent.commands import mine as command
from sql_agent.config import DatabaseConfig, RewardConfig, build_config, load_recipe, resolve_system_prompt
from sql_agent.curation.leaks import find_leaks
from sql_agent.curation.rows import read_rows
from sql_agent.data.dataset import load_questions
from sql_agent.environment.database import Database
from sql_agent.mining.asks import KINDS, Maker
from sql_agent.mining.questions import Mined, mine_questions, shown_wordings, side_of, trivial, unfit
from sql_agent.mining.recipe import readme, write_recipe
from sql_agent.mining.schema import Schema, Table, literal, quoted, read_schema, words
from sql_agent.mining.state import Settled, begin, begin_training, read_state, save
from sql_agent.mining.tiny import TableTeacher, task_of
from sql_agent.records import Episode, QueryResult, SqlCall
from sql_agent.scoring.build import build_context
from sql_agent.scoring.reward import score
from sql_agent.tiny_policy.tokenizer import train_tokenizer
from tests.sql_db import fingerprint
from tests.typed import params

SIZES = {"train": 150, "val": 20, "test": 40, "test_wordings": 40, "test_tables": 30}
DDL = """
CREATE TABLE harbours (code TEXT PRIMARY KEY, "harbour name" TEXT, sea TEXT, depth REAL, opened DATE);
CREATE TABLE "order" (id INTEGER PRIMARY KEY, "from" TEXT REFERENCES harbours, "to" TEXT REFERENCES harbours (code),
    boat_id INT REFERENCES boats, "group" TEXT, weight INT, at DATE);
CREATE TABLE boats (id INTEGER PRIMARY KEY, name TEXT, builtYear INT, crew INT, note TEXT, mast BLOB);
CREATE TABLE sailors (id INTEGER PRIMARY KEY, name TEXT, boat_id INT REFERENCES boats (id), rank TEXT, paid REAL,
    chief INT REFERENCES sailors (id));
CREATE TABLE berths (code TEXT, nr INT, boat INT, sailor INT, length INT, PRIMARY KEY (code, nr),
    FOREIGN KEY (boat, sailor) REFERENCES sailors (boat_id, id));
CREATE TABLE vacant (id INTEGER PRIMARY KEY, name TEXT);
CREATE VIEW "heavy orders" AS SELECT id AS order_no, weight, at FROM "order" WHERE weight > 300;
"""


def made_database(path: Path) -> Path:
    rng = random.Random(3)

    def word() -> str:
        return "".join(rng.choices(["ba", "lo", "mi", "ru", "ten", "sor", "vik"], k=3)).capitalize()

    def day() -> str:
        return f"{rng.randint(2010, 2023)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"

    names = sorted({f"{word()} {word()}" for _ in range(400)})
    codes = [f"H{n:03d}" for n in range(30)]
    rows = {
        "harbours": [(c, names[n], rng.choice(["North", "South"]), n + 0.5, day()) for n, c in enumerate(codes)],
        "boats": [
            (n, f"O'{names[40 + n]}", rng.randint(1950, 2010), rng.randint(2, 90), "x" * 200, b"\0") for n in range(60)
        ],
        "sailors": [
            (n, names[110 + n], rng.randrange(55), rng.choice(["mate", "cook", "boy"]), rng.randint(9, 99) / 4, None)
            for n in range(150)
        ],
        "order": [
            (n, *rng.sample(codes, 2), rng.randrange(60), rng.choice(["a1", "b2", "c3"]), rng.randint(1, 900), day())
            for n in range(200)
        ],
        "berths": [(c, n, 1, 1, rng.randint(4, 40)) for c in codes for n in range(2)],
    }
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(DDL)
        for table, cells in rows.items():
            places = ", ".join("?" * len(cells[0]))
            connection.executemany(f"INSERT INTO {quoted(table)} VALUES ({places})", cells)
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_database(tmp_path_factory.mktemp("mined") / "ships.db")


@pytest.fixture(scope="module")
def schema(path: Path) -> Schema:
    return read_schema(str(path))


@pytest.fixture(scope="module")
def mined(schema: Schema, path: Path) -> Mined:
    return mine_questions(schema, str(path), language="en", seed=1, sizes=SIZES)


@pytest.fixture(scope="module")
def settled(path: Path) -> Settled:
    return command.settle(str(path), language="en", seed=1, questions=150, tables=[], model="")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, schema: Schema, mined: Mined, settled: Settled) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("recipe") / "ships"
    state = begin(folder, settled)
    write_recipe(folder, schema, mined, settled, gpu=False)
    save(folder, state.model_copy(update={"questions": True}))
    yield folder


@pytest.fixture
def database(schema: Schema, path: Path) -> Iterator[Database]:
    config = DatabaseConfig(path=str(path), tables=[table.name for table in schema.tables])
    with Database(config, path) as database:
        yield database


def test_the_schema_is_read_with_roles_that_follow_from_the_values(schema: Schema) -> None:
    roles = {f"{t.name}.{c.name}": c.role for t in schema.tables for c in t.columns}
    assert {name: roles[name] for name in roles if name.split(".")[0] in ("harbours", "boats", "order")} == {
        "harbours.code": "key",
        "harbours.harbour name": "text",
        "harbours.sea": "category",
        "harbours.depth": "number",
        "harbours.opened": "date",
        "boats.id": "key",
        "boats.name": "text",
        "boats.builtYear": "year",
        "boats.crew": "number",
        "boats.note": "long",
        "boats.mast": "long",
        "order.id": "key",
        "order.from": "key",
        "order.to": "key",
        "order.boat_id": "key",
        "order.group": "category",
        "order.weight": "number",
        "order.at": "date",
    }
    assert {table.name: table.ident for table in schema.tables} == {
        "harbours": "harbour name",
        "boats": "name",
        "sailors": "name",
        "order": "id",
        "berths": "",
        "heavy orders": "order_no",
    }
    assert schema.table("heavy orders").is_view and not schema.table("order").is_view


def test_links_are_the_foreign_keys_of_several_columns_and_to_the_same_table_too(schema: Schema) -> None:
    assert {(link.table, link.columns, link.parent, link.parent_columns) for link in schema.links} == {
        ("order", ("from",), "harbours", ("code",)),
        ("order", ("to",), "harbours", ("code",)),
        ("order", ("boat_id",), "boats", ("id",)),
        ("sailors", ("boat_id",), "boats", ("id",)),
        ("sailors", ("chief",), "sailors", ("id",)),
        ("berths", ("boat", "sailor"), "sailors", ("boat_id", "id")),
    }


def test_a_link_to_the_same_table_and_one_of_two_columns_ask_by_right_sql(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "crews.db")) as connection, connection:
        connection.execute("CREATE TABLE crews (port TEXT, name TEXT, chief TEXT, pay REAL, PRIMARY KEY (port, name))")
        connection.execute(
            "CREATE TABLE men (name TEXT PRIMARY KEY, boss TEXT REFERENCES men, port TEXT, crew TEXT, "
            "age INT, FOREIGN KEY (port, crew) REFERENCES crews)"
        )
        crews = [(port, name, f"{port}{name}", n + 0.5) for port in "PQRST" for n, name in enumerate("abcd")]
        connection.executemany("INSERT INTO crews VALUES (?, ?, ?, ?)", crews)
        men = [(f"M{n}", f"M{n // 3}" if n else None, *crews[n % 7][:2], 20 + n) for n in range(60)]
        connection.executemany("INSERT INTO men VALUES (?, ?, ?, ?, ?)", men)
    schema = read_schema(str(tmp_path / "crews.db"))
    maker = Maker(schema, random.Random(1), lambda column: random.Random(2).choice(column.samples))
    asked = [
        ask for _ in range(40) for kind in ("parent", "children_count", "most", "without") if (ask := maker.ask(kind))
    ]
    own = {ask.slots["parent"] for ask in asked if ask.tables == {"men"}}
    assert own == {"boss"}  # nobody asks for the man of a man
    config = DatabaseConfig(path=str(tmp_path / "crews.db"), tables=["men", "crews"])
    with Database(config, tmp_path / "crews.db") as database:
        rows = {ask.query.sql: database.query_sync(ask.query.sql) for ask in asked}
    assert all(result.ok for result in rows.values()), [result.error for result in rows.values()]
    without = next(ask.query.sql for ask in asked if ask.kind == "without")
    assert sorted(rows[without].rows) == [[chief] for *_, chief, _ in crews[7:]]


def test_what_is_named_and_filled_like_a_foreign_key_is_a_link(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "plain.db")) as connection, connection:
        connection.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
        connection.execute("CREATE TABLE bills (nr INTEGER PRIMARY KEY, customer_id INT, CustomerId INT, stray_id INT)")
        connection.executemany("INSERT INTO customers VALUES (?, ?)", [(n, f"N{n}") for n in range(1, 9)])
        bills = [(n, n, n + 1, n) for n in range(1, 9)]  # the second column leads to no customer once
        connection.executemany("INSERT INTO bills VALUES (?, ?, ?, ?)", bills)
    schema = read_schema(str(tmp_path / "plain.db"))
    assert [(link.columns, link.parent, link.parent_columns) for link in schema.links] == [
        (("customer_id",), "customers", ("id",))
    ]
    assert schema.table("bills").column("customer_id").role == "key"


def test_chosen_tables_alone_are_read_and_others_refused(path: Path) -> None:
    assert [table.name for table in read_schema(str(path), tables=["boats", "order"]).tables] == ["boats", "order"]
    with pytest.raises(UserError, match="no table boat; there are: berths, boats[^.]*; name one of them with --table$"):
        read_schema(str(path), tables=["boat"])


def test_what_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("no database, but a text that is long enough to look like one" * 9)
    with pytest.raises(UserError, match="not a SQLite database.*of a CSV make one"):
        read_schema(str(tmp_path / "x.db"))
    with closing(sqlite3.connect(tmp_path / "empty.db")) as connection:
        connection.execute("CREATE TABLE t (x)")
    with pytest.raises(UserError, match="no table with rows"):
        read_schema(str(tmp_path / "empty.db"))
    (tmp_path / "none.db").write_bytes(b"")
    with pytest.raises(UserError, match="0 bytes; (?!.*CSV)"):  # the rest has a remedy of its own
        read_schema(str(tmp_path / "none.db"))


def test_virtual_tables_alone_are_refused_with_a_remedy_that_works(tmp_path: Path) -> None:
    file = tmp_path / "notes.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE VIRTUAL TABLE notes USING fts5 (title, body)")
        connection.executemany("INSERT INTO notes VALUES (?, ?)", [(f"N{n}", f"text {n}") for n in range(9)])
    with pytest.raises(UserError, match="virtual") as refused:
        read_schema(str(file), tables=["notes"])
    told = str(refused.value).rpartition(": ")[2]
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(told.replace("NEW", "pages").replace("OLD", "notes"))
    assert [table.name for table in read_schema(str(file)).tables] == ["pages"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("birthDate", "birth date"),
        ("order_items", "order items"),
        ("VATNumber", "vat number"),
        ("a\"b'c", "a b c"),
        ("药品_名称", "药品 名称"),
    ],
)
def test_names_as_words(name: str, said: str) -> None:
    assert words(name) == said


@pytest.mark.parametrize(
    ("name", "one", "several"),
    [
        ("categories", "category", "categories"),
        ("order_items", "order item", "order items"),
        ("person", "person", "people"),
        ("people", "person", "people"),
        ("children", "child", "children"),
        ("aircraft", "aircraft", "aircraft"),
        ("status", "status", "statuses"),
        ("bus", "bus", "buses"),
        ("gas", "gas", "gases"),
        ("campus", "campus", "campuses"),
        ("menus", "menu", "menus"),
        ("sales", "sale", "sales"),
        ("ACC_HIST_2", "acc hist 2", "acc hist 2"),
        ("analyses", "analysis", "analyses"),
        ("学生", "学生", "学生"),
    ],
)
def test_one_and_several(name: str, one: str, several: str) -> None:
    table = Table(name=name, n_rows=1, columns=())
    assert (table.label, table.labels) == (one, several)


def _made(path: Path, *tables: str, rows: Mapping[str, Sequence[tuple[object, ...]]]) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in tables:
            connection.execute(f"CREATE TABLE {table}")
        for name, cells in rows.items():
            connection.executemany(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(cells[0]))})', cells)
    return path


NAMED = [(n, f"G{n}") for n in range(9)]


def test_two_that_would_be_called_alike_are_said_as_they_stand(tmp_path: Path) -> None:
    tables = ("note (id INTEGER PRIMARY KEY, aa_b INT, aaB INT, kW INT)", "notes (id INTEGER PRIMARY KEY, x INT)")
    rows = {"note": [(n, n, n + 1, n) for n in range(9)], "notes": [(n, n) for n in range(9)]}
    schema = read_schema(str(_made(tmp_path / "n.db", *tables, rows=rows)))
    assert [(table.label, table.labels) for table in schema.tables] == [("note", "note"), ("notes", "notes")]
    assert [column.label for column in schema.table("note").columns] == ["id", "aa_b", "aaB", "kw"]


def test_columns_are_said_as_a_person_would(tmp_path: Path) -> None:
    tables = (
        "books (id INTEGER PRIMARY KEY, starts DATE, joined_on DATE, pages INT, weight_kg INT, is_lent TEXT, "
        "updated DATE)",
    )
    rows = {
        "books": [(n, *2 * (f"2020-01-{n:02d}",), 7 * n, n * n, "YN"[n % 2], f"2021-01-{n:02d}") for n in range(1, 9)]
    }
    table = read_schema(str(_made(tmp_path / "b.db", *tables, rows=rows))).tables[0]
    said = ["id", "start date", "joined date", "number of pages", "weight in kg", "lent flag", "updated date"]
    assert [column.label for column in table.columns] == said


@pytest.mark.parametrize(
    ("columns", "row", "ident"),
    [
        ("id INTEGER PRIMARY KEY, zip TEXT, born DATE", "0{n}467", "id"),
        ("id INTEGER PRIMARY KEY, paid TEXT, born DATE", "EUR {n}19.39", "id"),
        ("id INTEGER PRIMARY KEY, street TEXT, born DATE", "{n} Hill Road", "street"),
        ("id INTEGER PRIMARY KEY, name TEXT, born DATE", "K{n}00", "name"),
        ("编号 TEXT PRIMARY KEY, 课程名 TEXT, 日期 DATE", "课{n}", "课程名"),
        ("id INTEGER PRIMARY KEY, Bezeichnung TEXT, Datum DATE", "B{n}00", "Bezeichnung"),
    ],
)
def test_a_row_is_called_by_what_reads_as_a_name(tmp_path: Path, columns: str, row: str, ident: str) -> None:
    rows = {"t": [(f"C{n}" if "编号" in columns else n, row.format(n=n), f"2020-01-{n:02d}") for n in range(1, 10)]}
    assert read_schema(str(_made(tmp_path / "t.db", f"t ({columns})", rows=rows))).tables[0].ident == ident


def test_values_that_differ_in_case_alone_are_not_asked_for(tmp_path: Path) -> None:
    states = ["open", "Open", "closed", " closed", "lost", "sold"]
    rows = {"t": [(n, states[n % 6]) for n in range(60)]}
    column = read_schema(str(_made(tmp_path / "t.db", "t (id INTEGER PRIMARY KEY, state TEXT)", rows=rows))).tables[0]
    assert column.column("state").samples == ("lost", "sold")


def test_columns_called_by_codes_say_nothing_of_the_language(tmp_path: Path) -> None:
    columns = [f"c{n:03d}" for n in range(40)]
    rows = {"readings": [(n, *(n + k for k in range(40))) for n in range(9)]}
    schema = read_schema(
        str(_made(tmp_path / "c.db", f"readings (id INTEGER PRIMARY KEY, {' INT, '.join(columns)} INT)", rows=rows))
    )
    assert schema.tables[0].label == "reading"


def test_in_another_language_names_are_said_as_they_stand(tmp_path: Path) -> None:
    tables = ('t_users (id INTEGER PRIMARY KEY, "定价（元）" INT, hired DATE)',)
    rows = {"t_users": [(n, n, f"2020-01-{n:02d}") for n in range(1, 9)]}
    path = str(_made(tmp_path / "u.db", *tables, rows=rows))
    table = read_schema(path, language="zh").table("t_users")
    assert (table.label, table.labels) == ("t_users", "t_users")
    assert [column.label for column in table.columns] == ["id", "定价（元）", "hired"]
    assert [column.label for column in read_schema(path).table("t_users").columns] == ["id", "定价 元", "hired date"]


def test_where_most_names_are_not_english_they_are_said_as_they_stand(tmp_path: Path) -> None:
    tables = (
        "Kunde (KundenNr INTEGER PRIMARY KEY, Name TEXT, Geburtsdatum DATE)",
        "Rechnung (RechnungNr INTEGER PRIMARY KEY, id_kunde INT, Betrag INT, Telefon INT, Extras TEXT)",
    )
    kunden = [(n, f"K{n}", f"1980-01-{n:02d}") for n in range(1, 29)]
    rows = {"Kunde": kunden, "Rechnung": [(n, 1 + n % 28, 7 * n, 4922100 + n, f'{{"n": {n}}}') for n in range(90)]}
    schema = read_schema(str(_made(tmp_path / "k.db", *tables, rows=rows)))
    assert [(table.label, table.labels) for table in schema.tables] == [("Kunde", "Kunde"), ("Rechnung", "Rechnung")]
    assert [column.label for column in schema.table("Kunde").columns] == ["KundenNr", "Name", "Geburtsdatum"]
    assert [(link.columns, link.parent) for link in schema.links] == [(("id_kunde",), "Kunde")]
    roles = {column.name: column.role for column in schema.table("Rechnung").columns}
    assert roles == {"RechnungNr": "key", "id_kunde": "key", "Betrag": "number", "Telefon": "code", "Extras": "long"}


@pytest.mark.long
def test_a_query_may_take_several_times_what_the_slowest_reference_took(
    schema: Schema, mined: Mined, settled: Settled, tmp_path: Path
) -> None:
    limits = []
    for slowest_s in (0.01, 1.5):
        write_recipe(tmp_path, schema, replace(mined, slowest_s=slowest_s), settled, gpu=False)
        limits.append(tomllib.loads((tmp_path / "config.toml").read_text())["database"]["timeout_s"])
    assert limits == [DatabaseConfig().timeout_s, 8.0]
    assert 0 < mined.slowest_s < 30


def test_what_is_asked_again_runs_once_and_a_column_that_cannot_be_read_is_named(
    path: Path, schema: Schema, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run: list[str] = []
    query = Database.query_sync

    def slow(self: Database, sql: str) -> QueryResult:
        run.append(sql)
        late = "COUNT(DISTINCT weight)" in sql
        return QueryResult(error="the query was stopped after 20 s") if late else query(self, sql)

    monkeypatch.setattr(Database, "query_sync", slow)
    without = read_schema(str(path), tables=["order"])
    assert "weight" not in {column.name for column in without.table("order").columns}
    assert "column weight of order is left out: the query was stopped after 20 s" in caplog.text
    run.clear()
    monkeypatch.setattr("sql_agent.mining.questions.N_FULL", 1)  # two at the same time may be one query
    mine_questions(schema, str(path), language="en", seed=1, sizes={"train": 60})
    assert len(run) == len({*run}) > 60


def test_what_can_be_one_at_most_is_not_counted_and_a_total_not_totalled(tmp_path: Path) -> None:
    tables = (
        "members (id INTEGER PRIMARY KEY, name TEXT)",
        "cards (id INTEGER PRIMARY KEY, member_id INT REFERENCES members (id), total_hours INT)",
    )
    rows = {"members": [(n, f"M{n}") for n in range(9)], "cards": [(n, n, 10 + n * n) for n in range(9)]}
    schema = read_schema(str(_made(tmp_path / "m.db", *tables, rows=rows)))
    maker = Maker(schema, random.Random(1), lambda column: random.Random(2).choice(column.samples))
    assert not any(maker.ask("children_count") for _ in range(20))
    hows = {ask.slots["how"] for _ in range(60) if (ask := maker.ask("amount"))}
    assert hows == {"average", "highest", "lowest"}


def test_what_does_not_add_up_is_not_totalled(tmp_path: Path) -> None:
    columns = "age INT, price INT, total_price INT, 身高 INT, hours INT"
    rows = {"t": [(*one, *(n + k for k in range(5))) for n, one in enumerate(NAMED)]}
    schema = read_schema(str(_made(tmp_path / "t.db", f"t (id INTEGER PRIMARY KEY, name TEXT, {columns})", rows=rows)))
    maker = Maker(schema, random.Random(1), lambda column: column.samples[0])
    asks = [ask for _ in range(200) if (ask := maker.ask("amount"))]
    assert {ask.slots["column"] for ask in asks if ask.slots["how"] == "total"} == {"number of hours"}
    assert {ask.slots["column"] for ask in asks} >= {"age", "price", "total price", "身高"}


def test_a_parent_is_said_by_a_noun_and_not_asked_for_what_it_is_called(tmp_path: Path) -> None:
    tables = (
        "groups (id INTEGER PRIMARY KEY, 'group' TEXT, size INT)",
        "men (id INTEGER PRIMARY KEY, name TEXT, 'group' INT REFERENCES groups, referred_by INT REFERENCES men)",
    )
    groups = [(n, name, n * n) for n, name in NAMED]
    men = [(n, f"M{n}", n % 9, n // 3) for n in range(40)]
    schema = read_schema(str(_made(tmp_path / "g.db", *tables, rows={"groups": groups, "men": men})))
    maker = Maker(schema, random.Random(1), lambda column: random.Random(2).choice(column.samples))
    asks = [ask.slots for _ in range(60) if (ask := maker.ask("parent"))]
    told = {(ask["parent"], ask["column"]) for ask in asks}
    assert told == {("group", "size"), ("referred by man", "name")}


@pytest.mark.parametrize("column", ["Abteilung_ID", "id_abteilung"])
def test_an_id_in_any_spelling_is_left_out_of_what_a_parent_is_called(tmp_path: Path, column: str) -> None:
    tables = (
        "Abteilung (ID INTEGER PRIMARY KEY, Bezeichnung TEXT, Leiter INT REFERENCES Mitglied (Nummer))",
        f"Mitglied (Nummer INTEGER PRIMARY KEY, Nachname TEXT, {column} INT REFERENCES Abteilung (ID))",
    )
    rows = {"Abteilung": [(*one, 3) for one in NAMED], "Mitglied": [(n, f"N{n}", n % 9) for n in range(40)]}
    schema = read_schema(str(_made(tmp_path / "a.db", *tables, rows=rows)))
    maker = Maker(schema, random.Random(1), lambda column: random.Random(2).choice(column.samples))
    called = {ask.slots["parent"].lower() for _ in range(60) if (ask := maker.ask("parent"))}
    assert called == {"leiter mitglied", "abteilung"}


@pytest.mark.parametrize("own", ["department_id", "dept_id", "code"])
def test_where_two_tables_lead_to_each_other_the_parent_is_called_by_its_column(tmp_path: Path, own: str) -> None:
    key = "id" if own.endswith("_id") else own
    tables = (
        f"departments ({key} INTEGER PRIMARY KEY, name TEXT, head_id INT REFERENCES employees (id))",
        f"employees (id INTEGER PRIMARY KEY, full_name TEXT, pay INT, {own} INT REFERENCES departments ({key}))",
    )
    departments = [(n, f"D{n}", 3 * n) for n in range(9)]
    rows = {"departments": departments, "employees": [(n, f"E{n}", 100 + n, n % 9) for n in range(40)]}
    schema = read_schema(str(_made(tmp_path / "d.db", *tables, rows=rows)))
    maker = Maker(schema, random.Random(1), lambda column: random.Random(2).choice(column.samples))
    asks = [ask for _ in range(60) if (ask := maker.ask("parent"))]
    called = {ask.slots["table"]: ask.slots["parent"] for ask in asks}
    assert called == {"department": "head employee", "employee": "department"}  # never "the employee of the department"


@pytest.mark.parametrize("time", ["", "T10:20:30Z", " 10:20:30.125", "T10:20:30+00:00"])
def test_days_and_instants_are_dates(tmp_path: Path, time: str) -> None:
    rows = {"logs": [(n, f"2020-01-{n:02d}{time}") for n in range(1, 29)]}
    path = _made(tmp_path / "l.db", "logs (id INTEGER PRIMARY KEY, ts TEXT)", rows=rows)
    schema = read_schema(str(path))
    assert schema.table("logs").column("ts").role == "date"
    with Database(DatabaseConfig(path=str(path), tables=["logs"]), path) as database:
        ask = Maker(schema, random.Random(1), lambda column: column.samples[0]).ask("year")
        assert ask and database.query_sync(ask.query.sql).rows == [[28]]


@pytest.mark.parametrize("other", ["unknown", "-", "2020-01-01 10:20"])
def test_days_beside_words_or_instants_are_texts(tmp_path: Path, other: str) -> None:
    days = [f"{2000 + n // 300}-{n // 25 % 12 + 1:02d}-{n % 25 + 1:02d}" for n in range(500)]
    rows = {"logs": [(n, other if n == 30 else day) for n, day in enumerate(days)]}
    schema = read_schema(str(_made(tmp_path / "l.db", "logs (id INTEGER PRIMARY KEY, ts TEXT)", rows=rows)))
    assert schema.table("logs").column("ts").role == "text"  # else "unknown" is the latest day


def test_codes_in_other_languages_and_markup_are_not_reckoned_with(tmp_path: Path) -> None:
    codes = ["Kundennummer", "PLZ", "número", "科室编号", "status"]
    columns = ", ".join(f"{code} INT" for code in codes)
    rows = {"t": [(n, *len(codes) * (n * n,), f"<p>Hi <b>{n}</b></p>") for n in range(60)]}
    path = _made(tmp_path / "t.db", f"t (id INTEGER PRIMARY KEY, {columns}, body TEXT)", rows=rows)
    roles = {column.name: column.role for column in read_schema(str(path)).tables[0].columns}
    assert roles == {"id": "key", **dict.fromkeys(codes, "code"), "body": "long"}


def test_a_view_of_the_same_rows_does_not_lead_to_its_table(tmp_path: Path) -> None:
    path = _made(tmp_path / "s.db", "shops (shop_id INTEGER PRIMARY KEY, name TEXT)", rows={"shops": list(NAMED)})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE VIEW large_shops AS SELECT * FROM shops WHERE shop_id < 6")
    assert not read_schema(str(path)).links


def test_a_number_of_many_digits_is_named_by_four_and_is_no_answer(tmp_path: Path) -> None:
    rows = {"probes": [(n, f"P{n}", n / 7) for n in range(1, 60)]}
    path = _made(tmp_path / "p.db", "probes (id INTEGER PRIMARY KEY, name TEXT, weight REAL)", rows=rows)
    schema = read_schema(str(path))
    sizes = {"train": 60, "val": 0, "test": 0}
    found = mine_questions(schema, str(path), language="en", seed=1, sizes=sizes).splits["train"]
    texts = [f"{question.question} {question.answer}" for question in found]
    assert {"beyond", "amount_all"} <= {question.task_type for question in found}
    assert not any(re.search(r"\d\.\d{6}", text) for text in texts), texts


def test_every_reference_finds_what_its_answer_says(mined: Mined, database: Database) -> None:
    for questions in mined.splits.values():
        for question in questions:
            rows = database.query_sync(question.sql[0]).rows
            assert rows and all(cell is not None for row in rows for cell in row)
            assert all(str(cell) in question.answer for row in rows for cell in row)
            if question.meta["type"] == "number":
                assert str(rows[0][0]) == question.answer and isinstance(rows[0][0], int | float)
    kinds = {question.task_type for question in mined.splits["train"]}
    assert kinds >= {
        "lookup",
        "lookup_two",
        "compare",
        "counted",
        "beyond",
        "amount",
        "parent",
        "children_count",
        "top",
    }


def test_reference_and_answer_earn_the_whole_reward_and_a_constant_little(mined: Mined, path: Path) -> None:
    tables = ["harbours", "order", "boats", "sailors", "berths", "heavy orders"]
    terms = [{"scorer": "judge", "weight": 0.5, "name": "answer"}, {"scorer": "sql_result", "weight": 0.5}]
    config = RewardConfig.model_validate({"sql_bonus": 0, "terms": terms, "judge": {"kind": "reference"}})
    context = build_context(config, DatabaseConfig(path=str(path), tables=tables))

    async def earned() -> list[tuple[float, float]]:
        database = context.database_of("")
        assert database
        found = []
        for question in mined.splits["test"]:
            result = await database.query(question.sql[0])
            right = Episode(
                question=question, final_answer=question.answer, sql_calls=[SqlCall(sql=question.sql[0], result=result)]
            )
            rewards = [await score(one, context) for one in (right, replaced(right, "42, mate"))]
            found.append(tuple(reward.total or 0.0 for reward in rewards))
        return found

    rewards = asyncio.run(earned())
    context.close()
    assert min(right for right, _ in rewards) >= 0.95
    assert sum(constant for _, constant in rewards) / len(rewards) < 0.1


def replaced(episode: Episode, answer: str) -> Episode:
    return episode.model_copy(update={"final_answer": answer, "sql_calls": []})


def test_values_wordings_tables_and_queries_are_on_one_side(mined: Mined) -> None:
    train = mined.splits["train"]
    held = [question for name, found in mined.splits.items() if name != "train" for question in found]
    of = {split: {str(v).casefold() for q in found for v in q.meta["values"]} for split, found in mined.splits.items()}
    assert not of["train"] & (of["val"] | of["test"]) and not of["val"] & of["test"]
    assert not {q.sql[0] for q in train} & {q.sql[0] for q in held}
    assert {table for q in train for table in q.meta["tables"]}.isdisjoint(mined.held_tables) and mined.held_tables
    assert all({*q.meta["tables"]} & {*mined.held_tables} for q in mined.splits["test_tables"])
    for question in mined.splits["test_wordings"]:
        held_words = [re.escape(text) for text in shown_wordings("en", question.task_type, held=True)]
        assert any(re.fullmatch(re.sub(r"\\{\w+\\}", ".+", text), question.question, re.I) for text in held_words)


def test_the_leak_check_of_curation_finds_nothing(folder: Path) -> None:
    train = read_rows(folder / "train.jsonl")
    assert not [leak for name in ("val", "test") for leak in find_leaks(train, read_rows(folder / f"{name}.jsonl"))]


def test_a_seed_decides_everything(schema: Schema, path: Path, mined: Mined) -> None:
    sizes = {"train": 30, "val": 5}
    first, again, other = (mine_questions(schema, str(path), language="en", seed=s, sizes=sizes) for s in (1, 1, 2))
    assert first == again and first.splits != other.splits
    assert [q.sql for q in first.splits["val"]] == [q.sql for q in mined.splits["val"][:5]]


def test_chinese_questions(schema: Schema, path: Path) -> None:
    found = mine_questions(schema, str(path), language="zh", seed=1, sizes={"train": 30, "val": 5})
    assert len(found.splits["train"]) == 30
    assert all(re.search("[\u4e00-\u9fff]", question.question) for question in found.splits["train"])


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_asks_by_sql_that_runs(kind: str, schema: Schema, database: Database) -> None:
    rng = random.Random(kind)
    maker = Maker(schema, rng, lambda column: rng.choice(column.samples))
    asks = [ask for _ in range(60) if (ask := maker.ask(kind))]
    assert asks
    for ask in asks:
        for query in filter(None, (ask.query, ask.slip)):
            result = database.query_sync(query.sql)
            assert result.ok, result.error
            assert not result.rows or result.columns == [head[0] for head in query.heads]
        for sql in filter(None, (ask.flat, ask.ranked)):
            assert database.query_sync(sql).ok


def test_a_parent_is_not_asked_for_the_key_that_its_child_holds(schema: Schema) -> None:
    rng = random.Random(5)
    maker = Maker(schema, rng, lambda column: rng.choice(column.samples))
    asks = [ask for _ in range(200) if (ask := maker.ask("parent"))]
    assert asks and not any(ask.query.sql.startswith(("SELECT T2.code ", "SELECT T2.id ")) for ask in asks)


def test_ties_empty_results_and_idle_conditions_are_no_questions(schema: Schema, database: Database) -> None:
    rng = random.Random(1)
    maker = Maker(schema, rng, lambda column: column.samples[0])
    top = next(ask for _ in range(99) if (ask := maker.ask("top")) and ask.n_ranked > 1)
    tied = replace(top, ranked='SELECT 1 FROM "order" LIMIT 9')
    assert trivial(tied, QueryResult(columns=["x"], rows=[["a"]]), database.query_sync) == "a tie in a ranking"
    counted = maker.ask("counted")
    assert (
        counted
        and trivial(counted, QueryResult(columns=["COUNT(*)"], rows=[[0]]), database.query_sync) == "an empty result"
    )
    everything = database.query_sync(counted.flat)
    assert trivial(counted, everything, database.query_sync) == "a condition that changes nothing"
    assert trivial(counted, QueryResult(error="no"), database.query_sync) == "a query that fails"


def test_an_answer_is_kept_where_training_pays_it() -> None:
    rows = [["L29", 15.6], ["L41", 63.6]]
    result = QueryResult(columns=["label", "gross"], rows=rows)
    assert not unfit("Compare the gross of L41 and L29 among the sums.", result)
    assert not unfit("Give the gross for each of the sums L41 and L29.", result)
    asks = QueryResult(columns=["label", "gross"], rows=[["Why?", 15.6], ["L41", 63.6]])
    assert unfit("Give the gross for each of the sums L41 and Why?.", asks)  # an answer with a question mark


def test_the_recipe_composes_and_its_prompts_name_its_tables(folder: Path, schema: Schema) -> None:
    config = resolve_system_prompt(build_config(load_recipe(str(folder))), tiny=True)
    assert Path(config.agent.system_prompt) == folder / "prompt_short.txt"
    assert config.database.tables == [table.name for table in schema.tables]
    for name in ("prompt.txt", "prompt_short.txt"):
        text = (folder / name).read_text(encoding="utf-8")
        assert all(table.name in text for table in schema.tables)
        assert "drugs_info" not in text and "disease" not in text
    shown = (folder / "prompt.txt").read_text(encoding="utf-8")
    names = [v for t in schema.tables for c in t.columns if c.role == "text" for v in c.samples]
    assert not [name for name in names if side_of(name, 1) != "train" and f"{name}," in shown]
    assert len(load_questions(folder / "train.jsonl")) == len(read_rows(folder / "train.jsonl")) > 100


def test_the_teacher_shows_right_sql_and_nothing_held_out(
    folder: Path, schema: Schema, settled: Settled, database: Database
) -> None:
    lesson = task_of(folder).learn()
    held = {
        v for t in schema.tables for c in t.columns if c.role == "text" for v in c.samples if side_of(v, 1) != "train"
    }
    for flawed in (False, True):
        teacher = lesson.teacher(random.Random(1), flawed)
        for _ in range(150):
            _, asked, call, result, told = teacher.demonstrate()
            sql = call["tool_calls"][0]["function"]["arguments"]["sql"]
            found = database.query_sync(sql)
            assert found.ok, found.error
            records = json.loads(result["content"])["records"]
            assert not found.rows or [*records[0]] == found.columns
            assert told["content"] and not [name for name in held if str(name) in asked["content"]]


def test_fixed_parts_of_calls_are_one_token_each(folder: Path) -> None:
    lesson = task_of(folder).learn()
    tokenizer = train_tokenizer(lesson.texts, lesson.frames)
    teacher = lesson.teacher(random.Random(2), False)
    assert isinstance(teacher, TableTeacher)
    chats = [teacher.demonstrate() for _ in range(50)]
    texts = tokenizer.apply_chat_template(chats, tools=lesson.tools, tokenize=False)  # pyright: ignore
    assert max(len(ids) for ids in tokenizer(texts)["input_ids"]) < 600  # pyright: ignore
    joined = json.dumps(' FROM "order" AS T1 JOIN boats AS T2 ON T1.boat_id = T2.id')[1:-1]
    assert len(tokenizer.encode(joined, add_special_tokens=False)) == 1


@pytest.mark.long
def test_an_interrupted_stage_is_done_again_and_a_finished_one_is_not(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "ships"

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def go_on() -> None:
        command.mine(str(path), out=out, questions=60, train_=False)

    with monkeypatch.context() as patch:
        patch.setattr("sql_agent.mining.recipe.config_text", killed)
        with pytest.raises(KeyboardInterrupt):
            go_on()
    state = read_state(out)
    assert state and not state.questions and not (out / "config.toml").exists()
    go_on()
    state = read_state(out)
    assert state and state.questions
    monkeypatch.setattr(command, "write_questions", killed)
    go_on()  # nothing is left to do


def test_other_settings_another_database_and_a_foreign_folder_are_refused(tmp_path: Path, settled: Settled) -> None:
    begin(tmp_path / "a", settled)
    (tmp_path / "a" / "phrased.jsonl").touch()
    for changed, told in (
        ({"seed": 2}, r"\(seed 1 is now 2\)"),
        ({"database": "x", "changed_ns": 1}, r"\(database '.*' is now 'x'\)"),
        ({"size": 1, "changed_ns": 1}, "the file changed since"),
    ):
        with pytest.raises(UserError, match=f"begun otherwise .*{told}"):
            begin(tmp_path / "a", settled.model_copy(update=changed))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="not empty"):
        begin(tmp_path / "b", settled)
    with command.alone(tmp_path / "a"), pytest.raises(UserError, match="another"), command.alone(tmp_path / "a"):
        pass


def test_another_spelling_of_the_same_file_and_model_goes_on(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As also a folder does that was begun before paths were resolved."""
    (tmp_path / "models" / "small").mkdir(parents=True)
    (tmp_path / "link.db").symlink_to(path)
    monkeypatch.chdir(tmp_path / "models")
    asked: dict[str, Any] = {"language": "en", "seed": 1, "questions": 24, "tables": []}
    settled = command.settle("../link.db", model="small", **asked)
    begin(tmp_path / "out", settled)
    (tmp_path / "out" / "phrased.jsonl").touch()
    for database in (str(path), f"{tmp_path}/models/../link.db"):
        assert begin(tmp_path / "out", command.settle(database, model=f"{tmp_path}/models/small", **asked))
    state = json.loads((tmp_path / "out" / "state.json").read_text())
    state["settled"]["database"] = f"{tmp_path}/models/../link.db"
    (tmp_path / "out" / "state.json").write_text(json.dumps(state))
    assert begin(tmp_path / "out", settled).settled == settled
    hub = command.settle(str(path), model="Qwen/Qwen3-0.6B", **asked)
    assert hub.model == "Qwen/Qwen3-0.6B" and command.settle(str(path), model="", **asked).model == ""


def test_a_command_that_failed_before_it_made_anything_may_be_given_otherwise(tmp_path: Path, settled: Settled) -> None:
    begin(tmp_path / "a", settled.model_copy(update={"tables": ("shp",)}))
    corrected = settled.model_copy(update={"tables": ("ship",)})
    assert begin(tmp_path / "a", corrected).settled == corrected
    state = read_state(tmp_path / "a")
    assert state and state.settled == corrected


def test_a_command_that_made_nothing_leaves_no_folder(path: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no table nosuch"):
        command.mine(**params("mine", str(path), "--no-train", "--table", "nosuch", "--out", str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_too_few_rows_are_told_as_the_reason(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "small.db")) as connection:
        connection.executescript(
            "CREATE TABLE depot (name TEXT PRIMARY KEY, town TEXT, docks INT);"
            "INSERT INTO depot VALUES ('North', 'Kiel', 4), ('South', 'Ulm', 7);"
        )
    with pytest.raises(UserError, match="0 questions for train, .* rows enough .*; the largest here has 2"):
        command.mine(**params("mine", str(tmp_path / "small.db"), "--no-train", "--out", str(tmp_path / "out")))


def test_tables_that_are_left_out_are_named_with_the_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(sqlite3.connect(file := tmp_path / "notes.db")) as connection, connection:
        connection.executescript(
            'CREATE TABLE plans (id INTEGER PRIMARY KEY, name TEXT); CREATE TABLE "a\nb" (id INTEGER PRIMARY KEY);'
            "CREATE VIRTUAL TABLE notes USING fts5 (title); CREATE TABLE towns (name TEXT);"
            "INSERT INTO towns VALUES ('Kiel'), ('Ulm');"
        )
    assert [table.name for table in read_schema(str(file)).tables][-1:] == ["towns"]
    for name, why in (("plans", "it has no rows"), ("notes", "it is virtual"), (r"a\nb", "its name cannot be printed")):
        assert f"table '{name}' is left out: {why}" in caplog.text


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a folder; name a SQLite file"):
        command.settle(str(tmp_path), language="en", seed=1, questions=24, tables=[], model="")


def test_what_no_train_does_not_read_is_refused_before_the_database_is_read(path: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--samples: is read when it trains"):
        command.mine(**params("mine", str(path), "--no-train", "--samples", "2", "--out", str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_amounts_are_those_that_training_was_begun_with(tmp_path: Path, settled: Settled) -> None:
    state = begin(tmp_path / "a", settled)
    begin_training(tmp_path / "a", state, {"steps": 5, "samples": None})
    again = begin(tmp_path / "a", settled)
    begin_training(tmp_path / "a", again, {"steps": None, "samples": 1})
    assert again.amounts == {"steps": 5, "test_questions": 120, "samples": 1}
    with pytest.raises(UserError, match="--steps 6: .*/a was begun with 5; leave it out"):
        begin_training(tmp_path / "a", again, {"steps": 6})


def test_the_line_that_goes_on_says_what_was_settled(tmp_path: Path, path: Path, settled: Settled) -> None:
    asked = {"language": "zh", "seed": 3, "questions": 60, "tables": ("ship",), "model": "a b"}
    line = command.command_of(settled.model_copy(update=asked), tmp_path)
    given = params("mine", *line[2:])
    names = ("database", "seed", "questions", "tables", "model")
    found = command.settle(given["database"], language=given["language"], **{
        **{name: given[name] for name in ("seed", "questions", "model")}, "tables": given["table"]
    })  # fmt: skip
    assert {n: getattr(found, n) for n in names[1:]} == {n: asked[n] for n in names[1:]}
    assert (found.database, found.language, given["out"]) == (settled.database, "zh", tmp_path)
    with pytest.raises(UserError, match="--steps: is read when it trains"):
        command.mine(str(path), out=tmp_path / "c", questions=60, steps=3, train_=False)


def test_the_commands_of_its_readme_can_be_typed_as_they_stand(
    schema: Schema, mined: Mined, settled: Settled, tmp_path: Path
) -> None:
    database, folder = str(tmp_path / "our shop.db"), tmp_path / "it's mined"
    text = readme(folder, schema, mined, settled.model_copy(update={"database": database}))
    made, trained, evaluated = (shlex.split(line) for line in text.splitlines() if line.startswith("agentgrpo "))
    assert made == ["agentgrpo", "mine", database, "--out", str(folder)]
    assert trained[2:4] == ["--recipe", str(folder)]
    assert evaluated[2:] == ["--recipe", str(folder), "--split", str(folder / "test.jsonl")]


ODD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
HOSTILE = st.sampled_from(
    ['a"b', "x'; DROP TABLE t; --", "select", "a\nb", "{name}", "<|im_end|>", "a WHERE b", "名称", "%s", "", " ", "T1"]
)


@pytest.mark.long
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=ODD | HOSTILE, name=ODD | HOSTILE, number=ODD | HOSTILE, value=ODD | HOSTILE)
def test_no_name_and_no_value_breaks_a_query(tmp_path: Path, table: str, name: str, number: str, value: str) -> None:
    file = tmp_path / "odd.db"
    file.unlink(missing_ok=True)
    quote = {text: '"' + text.replace('"', '""') + '"' for text in (table, name, number)}
    with closing(sqlite3.connect(file)) as connection, connection:
        try:
            connection.execute(f"CREATE TABLE {quote[table]} ({quote[name]} TEXT, {quote[number]} INT, kind TEXT)")
        except sqlite3.Error:
            return  # no name of SQLite's, or one name twice
        rows = [(f"{value}{n}", n * 7, "ab"[n % 2]) for n in range(12)]
        connection.executemany(f"INSERT INTO {quote[table]} VALUES (?, ?, ?)", rows)
    before = fingerprint(tmp_path)
    try:
        schema = read_schema(str(file))
    except UserError:
        assert not table.isprintable() or not table.strip() or "<|" in table
        return
    mined = mine_questions(schema, str(file), language="en", seed=1, sizes={"train": 12, "val": 2})
    assert fingerprint(tmp_path) == before
    assert mined.dropped["a query that fails"] == 0
    assert mined.splits["train"] or not schema.tables[0].ident
    with closing(sqlite3.connect(file)) as connection:
        (echoed,) = connection.execute(f"SELECT {literal(value)}").fetchone()
    assert echoed == value
