"""A database for each question: which file an id reaches, what no query reaches, and tools that tell of a schema."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foundation.errors import UserError
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.agent.schema_tools import schema_tools
from sql_agent.agent.tool import EpisodeContext
from sql_agent.config import DatabaseConfig, RewardConfig, build_config
from sql_agent.environment.database import N_FULL, N_SHORT
from sql_agent.environment.databases import Databases
from sql_agent.errors import DatabaseFault
from sql_agent.records import Episode, Question, SqlCall
from sql_agent.scoring.build import build_context
from sql_agent.scoring.check import check_scorers
from sql_agent.scoring.reward import score
from tests.sql_db import fingerprint

NAMES = ["concert", "pets_1", "world.2"]
SCRIPT = """
    CREATE TABLE owner (id INTEGER PRIMARY KEY, name TEXT);
    CREATE TABLE "order" ("Order Id" INTEGER PRIMARY KEY, owner_id INTEGER REFERENCES owner (id), secret TEXT);
    CREATE VIEW named AS SELECT name FROM owner;
    CREATE VIEW broken AS SELECT lost FROM gone;
    INSERT INTO owner VALUES (1, 'Ann of {0}'), (2, 'Bob of {0}');
    INSERT INTO "order" VALUES (1, 1, 'only-in-{0}'), (2, 2, 'only-in-{0}');
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("many")
    for name in NAMES:
        make(root / "database" / name / f"{name}.sqlite", name)
    make(root / "outside.sqlite", "outside")
    return root / "database"


def make(path: Path, name: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(SCRIPT.format(name))


@pytest.fixture(scope="module")
def databases(folder: Path) -> Iterator[Databases]:
    with Databases(DatabaseConfig(folder=str(folder), timeout_s=1.0)) as opened:
        yield opened


def test_each_id_reaches_its_own_file(databases: Databases) -> None:
    assert databases.ids() == NAMES
    for name in [*NAMES, *reversed(NAMES)]:
        rows = databases.of(name).query_sync('SELECT DISTINCT secret FROM "order"').rows
        assert rows == [[f"only-in-{name}"]]
    # A view of a table that is gone is none.
    assert list(databases.of("pets_1").schema()) == ["named", "order", "owner"]


NO_NAMES = """
../outside .. . /etc/passwd concert/../../outside concert\\..\\x .hidden ~ %2e%2e/outside concert?mode=rwc file:concert
-x concert# con* CON: outside ： concert.sqlite
"""
HOSTILE = [*NO_NAMES.split(), "concert\0", "concert\n", "", " concert", "concert ", "x" * 500]


@pytest.mark.parametrize("db_id", HOSTILE, ids=repr)
def test_an_id_that_is_no_name_reaches_nothing(databases: Databases, db_id: str) -> None:
    assert databases.problem(db_id)
    with pytest.raises(DatabaseFault, match="db_id"):
        databases.of(db_id)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(db_id=st.text(max_size=30) | st.lists(st.sampled_from([*NAMES, "..", "/", "outside", ".sqlite"])).map("".join))
def test_whatever_an_id_is_it_is_one_of_the_folder(databases: Databases, db_id: str) -> None:
    assert (databases.problem(db_id) == "") == (db_id in NAMES)


def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "database"
    (root / "linked").mkdir(parents=True)
    (root / "linked" / "linked.sqlite").symlink_to(folder.parent / "outside.sqlite")
    os.symlink(folder / "concert", root / "concert")
    with Databases(DatabaseConfig(folder=str(root))) as opened:
        assert all("link out of database.folder" in opened.problem(name) for name in ("linked", "concert"))


# Beside those of tests/hostile_sql.py, which name no other file.
REACHING = [
    "ATTACH '{path}' AS b",
    "SELECT 1; ATTACH '{path}' AS b",
    'SELECT * FROM "{path}"."order"',
    "SELECT * FROM {name}.owner",
    "SELECT * FROM '{path}'",
    "SELECT * FROM csv('{path}')",
    "SELECT secret FROM \"order\" UNION SELECT readfile('{path}')",
    'WITH b AS (SELECT * FROM {name}."order") SELECT * FROM b',
]


@pytest.mark.parametrize("template", REACHING)
def test_no_query_reaches_another_file(databases: Databases, folder: Path, template: str) -> None:
    before = [fingerprint(one) for one in sorted(folder.iterdir())]
    other = "pets_1"
    sql = template.format(path=folder / other / f"{other}.sqlite", name=other)
    result = databases.of("concert").query_sync(sql)
    assert result.error and not result.rows and "only-in-pets_1" not in result.model_dump_json()
    assert [fingerprint(one) for one in sorted(folder.iterdir())] == before


WORDS = """
SELECT * FROM ATTACH DATABASE AS b b.owner pets_1."order" "order" owner secret 'PATH' "PATH" 'file:PATH?mode=ro'
readfile('PATH') main.owner temp.owner UNION WHERE 1 ( ) ; , -- /* */ WITH JOIN ON LIMIT VACUUM INTO PRAGMA
database_list
"""


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    words=st.lists(st.sampled_from(WORDS.split()), min_size=1, max_size=14), lead=st.sampled_from(["SELECT * FROM", ""])
)
def test_words_in_any_order_reach_no_other_file(
    databases: Databases, folder: Path, words: list[str], lead: str
) -> None:
    sql = " ".join([lead, *words]).replace("PATH", str(folder / "pets_1" / "pets_1.sqlite"))
    result = databases.of("concert").query_sync(sql)
    assert "only-in-pets_1" not in str(result.rows) and "of pets_1" not in str(result.rows)


@pytest.mark.long
def test_many_databases_share_a_few_processes(tmp_path: Path) -> None:
    names = [f"d{n:02d}" for n in range(20)]
    for name in names:
        make(tmp_path / name / f"{name}.sqlite", name)

    async def ask_all(opened: Databases) -> list[Any]:
        found = [opened.of(name).query('SELECT secret FROM "order" LIMIT 1') for name in names * 3]
        return [result.rows for result in await asyncio.gather(*found)]

    with Databases(DatabaseConfig(folder=str(tmp_path))) as opened:
        assert asyncio.run(ask_all(opened)) == [[[f"only-in-{name}"]] for name in names * 3]
        assert 0 < len(opened.workers.idle) <= N_FULL + N_SHORT
    assert len(opened.workers.idle) == 0


@pytest.mark.slow
def test_two_hundred_databases_grow_memory_by_at_most_300_mib(tmp_path: Path) -> None:
    names = [f"d{n:03d}" for n in range(200)]
    for name in names:
        make(tmp_path / name / f"{name}.sqlite", name)

    async def ask_all(opened: Databases) -> int:
        found = [opened.of(name).query(f'SELECT {n} + id FROM "owner"') for name in names for n in range(8)]
        return sum(len(result.rows) for result in await asyncio.gather(*found))

    before = held_mib()
    with Databases(DatabaseConfig(folder=str(tmp_path), timeout_s=20)) as opened:
        assert asyncio.run(ask_all(opened)) == 200 * 8 * 2
        grown = held_mib() - before
    print(f"200 databases, 1,600 queries: {grown:.0f} MiB more")
    assert grown < 300


def held_mib() -> float:
    """What this process and its children hold, shared pages counted once."""
    own = psutil.Process()
    return sum(one.memory_full_info().pss for one in (own, *own.children(recursive=True))) / 2**20


# --- rows, prompt, tools, reward


def question(db_id: str, **more: Any) -> Question:
    return Question(id="q", question="Who?", db_id=db_id, sql=["SELECT name FROM owner"], **more)


def test_rows_whose_database_is_not_there_are_named(folder: Path) -> None:
    context = build_context(RewardConfig(default_scorer="sql_result"), DatabaseConfig(folder=str(folder)))
    check_scorers([question("concert")], context)
    with pytest.raises(UserError, match=r"row 2 \(q\): db_id 'concer': no such file .*did you mean concert\?"):
        check_scorers([question("concert"), question("concer")], context)
    with pytest.raises(UserError, match="no db_id, and database.folder"):
        check_scorers([question("")], context)
    alone = build_context(RewardConfig(), DatabaseConfig(path=str(folder / "concert" / "concert.sqlite"), tables=[]))
    with pytest.raises(UserError, match="database.folder is not set"):
        check_scorers([question("concert")], alone)


@pytest.mark.parametrize("more", [{"tables": ["owner"]}, {"path": "x.db"}])
def test_keys_of_one_database_beside_a_folder_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"database.{next(iter(more))} = .*leave one of the two out"):
        build_config({"database": {"folder": "x", **more}})


def test_a_folder_survives_a_round_trip(folder: Path) -> None:
    config = build_config({"database": {"folder": str(folder)}})
    assert build_config(config.model_dump()).database == config.database
    assert config.database.tables == []


def test_the_reward_comes_from_the_questions_own_database(folder: Path) -> None:
    context = build_context(RewardConfig(default_scorer="sql_result"), DatabaseConfig(folder=str(folder)))
    assert context.databases
    sql = "SELECT name FROM owner"
    call = SqlCall(sql=sql, result=context.databases.of("concert").query_sync(sql))
    totals = [
        asyncio.run(score(Episode(question=question(name), final_answer="Ann", sql_calls=[call]), context)).parts
        for name in ("concert", "pets_1")
    ]
    assert [one["answer"] for one in totals] == [1.0, 0.0]
    lost = asyncio.run(score(Episode(question=question("../x"), final_answer="Ann", sql_calls=[call]), context))
    assert lost.total is None and lost.unscored == "database_fault"
    context.close()


def test_prompt_and_tools_are_those_of_the_question(folder: Path) -> None:
    tree = {
        "database": {"folder": str(folder)},
        "agent": {"tools": ["sql", "schema"], "system_prompt": "generic_zh"},
    }

    async def tables_of(runner: EpisodeRunner, name: str) -> str:
        context = EpisodeContext()
        async with runner.toolset.for_episode(question(name)) as offered:
            tools = {tool.name: tool for tool in offered.tools}
            arguments = json.dumps({"table": "ORDER", "column": "secret"})
            return await tools["sample_values"].invoke(context, arguments)

    with EpisodeRunner(build_config(tree)) as runner:
        runner.check()
        names = [tool.name for tool in runner.toolset.offered]
        assert names == ["query_database_by_sql", "list_tables", "describe_table", "sample_values"]
        assert '"order": "Order Id", owner_id, secret' in runner.prompt_for("pets_1")
        assert asyncio.run(tables_of(runner, "pets_1")) == '["only-in-pets_1"]'
        assert asyncio.run(tables_of(runner, "concert")) == '["only-in-concert"]'


def test_schema_without_sql_is_refused() -> None:
    with pytest.raises(UserError, match="schema tells of the database that sql reads"):
        build_config({"agent": {"tools": ["schema"]}})


CALLS = [
    ("list_tables", {}, {"named": "1 columns", "order": "3 columns", "owner": "2 columns"}),
    (
        "describe_table",
        {"table": "order"},
        {
            "columns": [
                {"name": "Order Id", "type": "INTEGER", "primary_key": True},
                {"name": "owner_id", "type": "INTEGER"},
                {"name": "secret", "type": "TEXT"},
            ],
            "foreign_keys": [{"column": "owner_id", "references": "owner.id"}],
        },
    ),
    ("sample_values", {"table": "owner", "column": "name", "limit": 1}, ["Ann of concert"]),
    ("sample_values", {"table": "order", "column": "order id"}, [1, 2]),
]


@pytest.mark.parametrize(("name", "given", "wanted"), CALLS)
def test_what_the_schema_tools_tell(databases: Databases, name: str, given: dict[str, Any], wanted: Any) -> None:
    context = EpisodeContext()
    tools = {tool.name: tool for tool in schema_tools(databases.of("concert"))}
    assert json.loads(asyncio.run(tools[name].invoke(context, json.dumps(given)))) == wanted
    assert [(call.name, call.outcome) for call in context.tool_calls] == [(name, "ok")]


WRONG = [
    ("list_tables", '{"x": 1}', "no argument 'x'"),
    ("describe_table", "{}", "table must be a name"),
    ("describe_table", '{"table": "ownr"}', "did you mean owner?"),
    ("describe_table", '{"table": "sqlite_master"}', "no table 'sqlite_master'"),
    ("sample_values", '{"table": "owner", "column": "name\\" FROM sqlite_master --"}', "no column"),
    ("sample_values", '{"table": "owner", "column": "name", "limit": 1000}', "from 1 to 20"),
    ("sample_values", "[1]", "give an object"),
]


@pytest.mark.parametrize(("name", "raw", "told"), WRONG)
def test_wrong_arguments_of_the_schema_tools_are_told(databases: Databases, name: str, raw: str, told: str) -> None:
    context = EpisodeContext()
    tools = {tool.name: tool for tool in schema_tools(databases.of("concert"))}
    assert told in asyncio.run(tools[name].invoke(context, raw))
    assert context.n_bad_tool_calls == 1
