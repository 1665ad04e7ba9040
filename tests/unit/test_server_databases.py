"""DuckDB, PostgreSQL and MariaDB behind the same Database as SQLite: answers, hostile SQL, limits, faults."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pymysql
import pytest

from foundation.errors import UserError
from sql_agent.agent.schema_tools import describe_table, list_tables, sample_values
from sql_agent.config import DatabaseConfig
from sql_agent.config.paths import database_place
from sql_agent.environment import server_worker
from sql_agent.environment.database import Database
from sql_agent.environment.sql_worker import Settings
from sql_agent.errors import DatabaseFault
from sql_agent.scoring.result_match import is_ordered
from tests.hostile_sql import HIDDEN, TELLTALE, WRITES, each
from tests.postgres import new_database
from tests.postgres import server as postgres_server

SECRET = "ZZ-hidden-ZZ"
READABLE = ["disease", "drugs_info", "Order List", "cheap"]
TABLES = """
CREATE TABLE disease (id INTEGER PRIMARY KEY, disease_name VARCHAR(80), overview TEXT, seen DATE);
CREATE TABLE drugs_info (id INTEGER PRIMARY KEY, med_name VARCHAR(80), price DECIMAL(8, 2), disease_id INTEGER,
    FOREIGN KEY (disease_id) REFERENCES disease (id));
CREATE TABLE "Order List" (id INTEGER PRIMARY KEY, "group" VARCHAR(20));
CREATE TABLE accounts (id INTEGER PRIMARY KEY, login VARCHAR(80));
CREATE VIEW logins AS SELECT login FROM accounts;
CREATE VIEW cheap AS SELECT med_name FROM drugs_info WHERE price < 10;
INSERT INTO disease VALUES (1, '高血压', '动脉血压持续升高', '2020-01-02'), (2, '流行性感冒', 'a%b\\c', NULL);
INSERT INTO "Order List" VALUES (1, 'x'), (2, 'y');
INSERT INTO accounts VALUES (1, 'ZZ-hidden-ZZ');
CREATE SCHEMA other_schema;
CREATE TABLE other_schema.notes (id INTEGER, login VARCHAR(80));
INSERT INTO other_schema.notes VALUES (1, 'ZZ-hidden-ZZ');
"""
DRUGS = [(n, f"药品{n:03d}", n / 2, 1 + n % 2) for n in range(1, 301)]
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Served:
    """A database and how its owner looks at it."""

    url: str
    owner: Callable[[str], Rows]
    folder: Path

    @property
    def kind(self) -> str:
        return self.url.partition(":")[0]

    def config(self, **more: Any) -> DatabaseConfig:
        return DatabaseConfig.model_validate({"url": self.url, "tables": READABLE, "timeout_s": 1.0, **more})

    def open(self, **more: Any) -> Database:
        config = self.config(**more)
        return Database(config, database_place(config))

    def everything(self) -> list[Any]:
        """All rows of all tables, the names of all tables and of all files that a statement could have made."""
        there = "SELECT table_schema, table_name, table_type FROM information_schema.tables"
        known = ("disease", "drugs_info", "accounts", "other_schema.notes")
        rows = [sorted(self.owner(f"SELECT * FROM {table}")) for table in known]
        files = [sorted(one.name for one in place.glob("*evil*")) for place in (self.folder, Path.cwd(), Path("/tmp"))]
        return [sorted(self.owner(there)), rows, files]


def _duck(path: Path) -> Served:
    with closing(duckdb.connect(str(path))) as db:
        db.execute(TABLES)
        db.executemany("INSERT INTO drugs_info VALUES (?, ?, ?, ?)", DRUGS)

    def owner(sql: str) -> Rows:
        with closing(duckdb.connect(str(path), read_only=True)) as db:
            return db.execute(sql).fetchall()

    return Served(f"duckdb:///{path}", owner, path.parent)


def _postgres(address: str) -> Served:
    """Its user owns everything here, so that nothing but the guard keeps it from writing."""
    address = new_database(address)
    with psycopg.connect(address, autocommit=True) as db:
        if not db.execute("SELECT 1 FROM pg_roles WHERE rolname = 'keeper'").fetchall():
            db.execute("CREATE ROLE keeper LOGIN")
        db.execute("GRANT ALL ON SCHEMA public TO keeper; CREATE EXTENSION IF NOT EXISTS dblink")
        name = db.info.dbname
        db.execute(f"GRANT ALL ON DATABASE {name} TO keeper")  # pyright: ignore[reportArgumentType, reportCallIssue]
        db.execute("SET ROLE keeper")
        for line in TABLES.split(";\n"):
            db.execute(line)  # pyright: ignore[reportArgumentType, reportCallIssue]
        db.execute(
            "CREATE FUNCTION upper(integer) RETURNS text LANGUAGE sql AS $$ SELECT login FROM public.accounts $$"
        )
        with db.cursor() as cursor:
            cursor.executemany("INSERT INTO drugs_info VALUES (%s, %s, %s, %s)", DRUGS)

    def owner(sql: str) -> Rows:
        with psycopg.connect(address) as db:
            return db.execute(sql).fetchall()  # pyright: ignore[reportArgumentType, reportCallIssue]

    folder = dict(part.split("=", 1) for part in address.split())["host"]
    return Served(f"postgresql://keeper@/{name}?host={folder}", owner, Path(folder))


def _mariadb(socket: Path) -> Served:
    def owner(sql: str, database: str | None = "shop") -> Rows:
        with (
            closing(
                pymysql.connect(
                    unix_socket=str(socket), user="root", database=database, autocommit=True, charset="utf8mb4"
                )
            ) as db,
            db.cursor() as cursor,
        ):
            cursor.execute(sql)
            return list(cursor.fetchall())

    if not owner("SELECT 1 FROM information_schema.schemata WHERE schema_name = 'shop'", None):
        owner("CREATE DATABASE shop", None)
        for line in TABLES.replace('"', "`").replace("\\", "\\\\").split(";\n"):
            if line.strip():
                owner(line)
        owner("INSERT INTO drugs_info VALUES " + ", ".join(map(repr, DRUGS)))
        owner("CREATE USER keeper")
        owner("GRANT ALL ON shop.* TO keeper")
        owner("GRANT ALL ON other_schema.* TO keeper")
    return Served(f"mariadb://keeper@localhost/shop?unix_socket={socket}", owner, socket.parent)


@pytest.fixture(scope="module", params=["duckdb", "postgresql", "mariadb"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    if request.param == "duckdb":
        return _duck(tmp_path_factory.mktemp("duck") / "shop.duckdb")
    if request.param == "postgresql":
        return _postgres(request.getfixturevalue("postgres"))
    return _mariadb(request.getfixturevalue("mariadb"))


@pytest.fixture(scope="module")
def database(served: Served) -> Iterator[Database]:
    with served.open() as database:
        database.check()
        yield database


# --- what it is for

LEGAL: list[tuple[str, Rows | list[list[Any]]]] = [
    ("SELECT id, disease_name, seen FROM disease ORDER BY id", [[1, "高血压", "2020-01-02"], [2, "流行性感冒", None]]),
    ("SELECT overview FROM disease WHERE overview LIKE 'a%'", [["a%b\\c"]]),
    ("SELECT COUNT(*), MIN(price), SUM(price) FROM drugs_info", [[300, 0.5, 22575]]),
    ("SELECT med_name FROM cheap ORDER BY 1 LIMIT 1", [["药品001"]]),
    (
        "SELECT d.disease_name, COUNT(*) AS n FROM drugs_info AS i JOIN disease AS d ON d.id = i.disease_id "
        "GROUP BY d.disease_name HAVING COUNT(*) > 1 ORDER BY d.disease_name DESC LIMIT 1",
        [["高血压", 150]],
    ),
    ("WITH disease AS (SELECT * FROM disease WHERE id = 2) SELECT disease.id FROM disease", [[2]]),
    ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4) SELECT SUM(i) FROM n", [[10]]),
    ("SELECT id FROM disease WHERE id IN (SELECT disease_id FROM drugs_info WHERE price = 1)", [[1]]),
    ("SELECT id FROM disease INTERSECT SELECT 2", [[2]]),
    (
        "SELECT EXTRACT(YEAR FROM seen), UPPER('a'), COALESCE(NULL, 3), CAST('7' AS DECIMAL(4, 1)) FROM disease "
        "WHERE id = 1",
        [[2020, "A", 3, 7]],
    ),
    ("SELECT id, ROW_NUMBER() OVER (ORDER BY id DESC) AS place FROM disease ORDER BY id", [[1, 2], [2, 1]]),
    (
        "SELECT CASE WHEN id = 1 THEN 'one' ELSE 'it''s \"two\"' END FROM disease ORDER BY id",
        [["one"], ['it\'s "two"']],
    ),
]


@pytest.mark.parametrize(("sql", "rows"), LEGAL, ids=lambda value: repr(value)[:40])
def test_legal_queries_work(database: Database, sql: str, rows: list[list[Any]]) -> None:
    result = database.query_sync(sql)
    assert (result.error, result.rows) == (None, rows)


def test_quoted_and_reserved_names(database: Database) -> None:
    name, column = database.quoted("Order List"), database.quoted("group")
    assert database.query_sync(f"SELECT {column} FROM {name} WHERE id = 2").rows == [["y"]]


async def test_the_schema_tools(database: Database) -> None:
    names = {table["table"] if isinstance(table, dict) else table for table in await list_tables(database, {})}
    assert names == {*READABLE}
    described = json.dumps(await describe_table(database, {"table": "drugs_info"})).upper()
    assert "DISEASE.ID" in described and ("DECIMAL" in described or "NUMERIC" in described)
    assert sorted(await sample_values(database, {"table": "Order List", "column": "group"})) == ["x", "y"]


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (
            "SELECT * FROM diseases",
            "no such table: diseases; did you mean disease?; columns of disease: id, disease_name",
        ),
        ("SELECT desease_name FROM disease", "no such column: desease_name; did you mean disease_name?"),
        ("SELECT nofunction(1)", "the function nofunction is not available"),
        ("SELECT (", ""),
        ("SELECT 1 LIMIT (SELECT 3)", "LIMIT n"),
        ("SELECT " + "(" * 3000 + "1" + ")" * 3000, ""),
        ("DELETE FROM disease", "only a single SELECT over"),
    ],
)
def test_errors_help_the_model(database: Database, sql: str, says: str) -> None:
    error = database.query_sync(sql).error
    assert error and says in error and len(error) < 1500


def test_rows_and_characters_are_limited(served: Served) -> None:
    with served.open(max_rows=7) as database:
        for sql in ("SELECT * FROM drugs_info", "SELECT * FROM drugs_info LIMIT 200"):
            result = database.query_sync(sql)
            assert len(result.rows) == 7 and result.truncated
        assert not database.query_sync("SELECT * FROM drugs_info LIMIT 7").truncated


# --- hostile statements

# What each database has and the others lack.
OWN = {
    "duckdb": [
        *each(
            "SELECT * FROM {}",
            """
            read_csv('/etc/passwd') read_csv_auto('/etc/passwd') read_text('/etc/passwd') read_blob('/etc/*')
            read_parquet('http://127.0.0.1:9/x.parquet') '/etc/passwd' "/etc/passwd" 'http://127.0.0.1:9/x.csv'
            glob('/etc/*') sniff_csv('/etc/passwd') duckdb_tables() duckdb_secrets() duckdb_settings()
            query_table('accounts') range(3) shop.main.accounts main.accounts
            """,
        ),
        *each(
            "SELECT {}",
            "query_table('accounts') getenv('HOME') current_setting('secret_directory') nextval('s') write_log('x')",
        ),
        "SELECT * FROM sqlite_scan('x.db', 't')",
        "SELECT * FROM postgres_scan('host=127.0.0.1', 'public', 't')",
        "SELECT * FROM query('SELECT * FROM accounts')",
        "FROM accounts",
        "FROM accounts SELECT login",
        "SELECT * FROM accounts AT (VERSION => 1)",
        "SELECT COLUMNS('.*') FROM accounts",
        "SELECT * FROM (PIVOT accounts ON login)",
        "SUMMARIZE accounts",
        "DESCRIBE accounts",
        "SHOW ALL TABLES",
        "COPY disease TO 'evil.csv'",
        "COPY disease FROM '/etc/passwd'",
        "EXPORT DATABASE 'evil'",
        "IMPORT DATABASE 'evil'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "LOAD '/tmp/evil.duckdb_extension'",
        "ATTACH ':memory:' AS evil",
        "ATTACH 'evil.duckdb' (READ_WRITE)",
        "USE other_schema",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "RESET ALL",
        "PRAGMA database_list",
        "CALL pragma_table_info('accounts')",
        "CREATE SECRET s (TYPE s3)",
        "CREATE MACRO upper(x) AS (SELECT login FROM accounts)",
        "CHECKPOINT",
        "SELECT list_transform([1], x -> x)",
        "SELECT accounts FROM accounts",
        "SELECT repeat('x', 1000000000)",
        "SELECT * FROM disease USING SAMPLE 1",
    ],
    "postgresql": [
        *each(
            "SELECT * FROM {}",
            """
            pg_ls_dir('/') pg_class pg_catalog.pg_class pg_shadow pg_stat_activity pg_largeobject pg_settings
            information_schema.tables other_schema.notes public.accounts
            """,
        ),
        *each(
            "SELECT {}",
            """
            pg_read_file('/etc/passwd') pg_read_binary_file('/etc/passwd') pg_catalog.pg_read_file('/etc/passwd')
            "pg_read_file"('/etc/passwd') pg_ls_dir('/') pg_stat_file('/etc/passwd') lo_import('/etc/passwd')
            lo_create(7) dblink_connect('host=127.0.0.1') current_setting('data_directory') pg_reload_conf()
            pg_terminate_backend(pg_backend_pid()) pg_sleep(9) pg_advisory_lock(1) nextval('s') pg_current_wal_lsn()
            version() current_user session_user current_database() inet_server_addr() pg_get_viewdef('logins')
            to_regclass('accounts') 'accounts'::regclass 'pg_read_file'::regproc $1
            """,
        ),
        "SELECT U&\"pg\\005fread\\005ffile\"('/etc/passwd')",
        "SELECT lo_export(1, '/tmp/evil')",
        "SELECT lo_from_bytea(0, 'x')",
        "SELECT dblink('host=127.0.0.1', 'SELECT 1')",
        "SELECT * FROM dblink('host=127.0.0.1', 'SELECT 1') AS t(a int)",
        "SELECT query_to_xml('SELECT * FROM accounts', true, false, '')",
        "SELECT table_to_xml('accounts', true, false, '')",
        "SELECT database_to_xml(true, true, '')",
        "SELECT cursor_to_xml('c', 1, true, false, '')",
        "SELECT xpath('/x', '<!DOCTYPE a SYSTEM \"/etc/passwd\"><x/>'::xml)",
        "SELECT '<!DOCTYPE a SYSTEM \"/etc/passwd\"><x/>'::xml",
        "SELECT ts_stat('SELECT login FROM accounts')",
        "SELECT * FROM ts_stat('SELECT to_tsvector(login) FROM accounts')",
        "SELECT set_config('default_transaction_read_only', 'off', false)",
        "SELECT set_config('search_path', 'other_schema', false)",
        "SELECT pg_notify('a', 'b')",
        "SELECT pg_logical_emit_message(true, 'a', 'b')",
        "SELECT has_table_privilege('accounts', 'SELECT')",
        "SELECT CAST('accounts' AS regclass)",
        "SELECT tableoid FROM disease",
        "SELECT ctid FROM disease",
        "SELECT disease.upper FROM disease",
        "SELECT d.pg_typeof FROM disease d",
        "SELECT d.row_to_json FROM disease d",
        "SELECT (d).id FROM disease d",
        "SELECT * FROM pg_class, (WITH pg_class AS (SELECT 1 AS a) SELECT * FROM pg_class) x",
        "WITH a AS (SELECT * FROM pg_class), pg_class AS (SELECT 1 AS b) SELECT * FROM a",
        "TABLE accounts",
        "SELECT * INTO evil FROM disease",
        "SELECT * FROM disease FOR UPDATE",
        "SELECT * FROM disease FOR SHARE",
        "WITH x AS (DELETE FROM disease RETURNING *) SELECT * FROM x",
        "WITH x AS (INSERT INTO disease (id) VALUES (9) RETURNING *) SELECT * FROM x",
        "WITH x AS (UPDATE disease SET overview = '' RETURNING *) SELECT * FROM x",
        "COPY accounts TO STDOUT",
        "COPY disease TO '/tmp/evil'",
        "COPY disease FROM PROGRAM 'id'",
        "COPY (SELECT 1) TO PROGRAM 'touch /tmp/evil'",
        "DO $$ BEGIN DELETE FROM disease; END $$",
        "SET ROLE postgres",
        "SET SESSION AUTHORIZATION postgres",
        "SET default_transaction_read_only = off",
        "BEGIN READ WRITE",
        "LISTEN a",
        "LOCK TABLE disease",
        "CREATE EXTENSION dblink",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "EXECUTE evil",
        "PREPARE evil AS DELETE FROM disease",
        "SELECT $$a$$; DELETE FROM disease; --$$",
        "SELECT E'\\'; DELETE FROM disease; --'",
        "SELECT 1 /* /* */ ; DELETE FROM disease; */",
        "SELECT repeat('x', 1000000000)",
        "SELECT lpad('x', 1000000000)",
        "SELECT generate_series(1, 1000000000)",
        "SELECT * FROM generate_series(1, 1000000000)",
        "SELECT * FROM disease TABLESAMPLE SYSTEM (1)",
        "SELECT 1 OPERATOR(pg_catalog.+) 1",
        "SELECT * FROM ROWS FROM (pg_ls_dir('/'))",
        "SELECT x FROM disease, LATERAL pg_ls_dir('/') x",
    ],
    "mariadb": [
        *each(
            "SELECT * FROM {}",
            """
            mysql.user mysql.global_priv information_schema.tables information_schema.processlist
            performance_schema.threads other_schema.notes shop.accounts `shop`.`accounts`
            """,
        ),
        *each(
            "SELECT {}",
            """
            LOAD_FILE('/etc/passwd') `LOAD_FILE`('/etc/passwd') @x @@datadir @@global.secure_file_priv SLEEP(9)
            RELEASE_ALL_LOCKS() USER() CURRENT_USER CURRENT_USER() DATABASE() VERSION() CONNECTION_ID()
            LAST_INSERT_ID(7) NEXTVAL(s) sys_exec('id') shop.f(1) _utf8mb4'x' SPACE(1000000000)
            """,
        ),
        "SELECT /*! LOAD_FILE('/etc/passwd') */",
        "SELECT /*!50000 LOAD_FILE('/etc/passwd') */ AS x",
        "SELECT /*M!100000 LOAD_FILE('/etc/passwd') */ AS x",
        "SELECT login FROM /*! accounts */",
        "SELECT id FROM disease /*! UNION SELECT login FROM accounts */ , accounts",
        "SELECT 1 INTO OUTFILE '/tmp/evil'",
        "SELECT * FROM disease INTO OUTFILE '/tmp/evil'",
        "SELECT 1 INTO DUMPFILE '/tmp/evil'",
        "SELECT 1 INTO @x",
        "SELECT @x := 1",
        "SELECT BENCHMARK(1000000000, MD5('a'))",
        "SELECT GET_LOCK('a', 1)",
        "SELECT MASTER_POS_WAIT('a', 1)",
        "SELECT EXTRACTVALUE(1, CONCAT(0x7e, (SELECT login FROM accounts)))",
        "SELECT UPDATEXML(1, CONCAT(0x7e, (SELECT login FROM accounts)), 1)",
        "SELECT NEXT VALUE FOR s",
        "SELECT SETVAL(s, 7)",
        "SELECT * FROM disease FOR UPDATE",
        "SELECT * FROM disease LOCK IN SHARE MODE",
        "SELECT * FROM disease PROCEDURE ANALYSE()",
        "SELECT * FROM disease PARTITION (p)",
        "SELECT * FROM drugs_info FOR SYSTEM_TIME ALL",
        "SELECT /*+ MAX_EXECUTION_TIME(0) */ SLEEP(9)",
        "SET STATEMENT max_statement_time = 0 FOR SELECT 1",
        "SET SESSION TRANSACTION READ WRITE",
        "START TRANSACTION READ WRITE",
        "HANDLER accounts OPEN",
        "DO SLEEP(9)",
        "LOAD DATA INFILE '/etc/passwd' INTO TABLE disease",
        "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE disease",
        "INSTALL SONAME 'evil'",
        "INSTALL PLUGIN evil SONAME 'evil'",
        "CALL f()",
        "SHOW GRANTS",
        "SHOW TABLES",
        "DESCRIBE accounts",
        "TRUNCATE disease",
        "RENAME TABLE disease TO evil",
        "LOCK TABLES disease WRITE",
        "FLUSH TABLES",
        "KILL 1",
        "GRANT ALL ON *.* TO keeper",
        "PREPARE evil FROM 'DELETE FROM disease'",
        "EXECUTE IMMEDIATE 'DELETE FROM disease'",
        "TABLE accounts",
        "SELECT 'a\\'; DELETE FROM disease; -- '",
        "SELECT 1; DELETE FROM disease",
        "SELECT REPEAT('x', 1000000000)",
        "SELECT LPAD('x', 1000000000, 'x')",
        "SELECT * FROM JSON_TABLE('[1]', '$[*]' COLUMNS (a INT PATH '$')) t",
    ],
}
# Of these, what runs says nothing but its own arguments: no table, no file, nothing written.
HARMLESS = {"SELECT 1 /* /* */ ; DELETE FROM disease; */", "SELECT 'a\\'; DELETE FROM disease; -- '"}


def test_hostile_statements_are_refused_and_leave_nothing(served: Served, database: Database) -> None:
    before = served.everything()
    telltale = [sql.format(name) for sql in TELLTALE for name in ("accounts", "logins") if "WITH" not in sql]
    telltale = [sql for sql in telltale if not sql.startswith("SELECT id FROM disease accounts")]
    telltale = [sql for sql in telltale if not sql.startswith("SELECT id FROM disease logins")]
    allowed: list[str] = []
    for sql in [*WRITES, *HIDDEN, *telltale, *OWN[served.kind]]:
        for prefix in ("", "-- SELECT\n", "/* SELECT */ ", ";;", "EXPLAIN ", "EXPLAIN ANALYZE "):
            result = database.query_sync(prefix + sql)
            assert SECRET not in result.model_dump_json() and "root:" not in result.model_dump_json(), prefix + sql
            allowed += [prefix + sql] if result.ok and sql not in HARMLESS else []
    assert not allowed
    assert served.everything() == before
    assert database.query_sync("SELECT COUNT(*) FROM disease").rows == [[2]]


@pytest.mark.parametrize("hidden", ["accounts", "logins"])
def test_a_hidden_table_looks_like_one_that_does_not_exist(database: Database, hidden: str) -> None:
    invented_name = "q" * len(hidden)
    for sql in TELLTALE:
        real, invented = (database.query_sync(sql.format(name)) for name in (hidden, invented_name))
        assert real.error == (invented.error and invented.error.replace(invented_name, hidden)), sql
        assert real.rows == invented.rows


def test_no_function_of_the_schema_stands_in_for_a_built_in_one(database: Database) -> None:
    """PostgreSQL's `upper(integer)` of the fixture gives the hidden text."""
    assert SECRET not in database.query_sync("SELECT UPPER(id) FROM disease").model_dump_json()


# What the connection alone must stop, were the tree of a statement ever misread. The user owns all tables.
BEYOND_THE_TREE = {
    "duckdb": [
        *("DELETE FROM disease", "CREATE TABLE evil (a INT)", "COPY disease TO 'evil.csv'", "ATTACH 'evil.duckdb'"),
        *("SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM '/etc/passwd'", "INSTALL httpfs", "LOAD httpfs"),
        *("SET enable_external_access = true", "SET lock_configuration = false", "SELECT * FROM glob('/etc/*')"),
    ],
    "postgresql": [
        *("DELETE FROM public.disease", "CREATE TABLE public.evil (a INT)", "TRUNCATE public.accounts"),
        *("COPY public.disease TO '/tmp/evil'", "SELECT pg_read_file('/etc/passwd')"),
        *("SELECT lo_import('/etc/passwd')", "COPY (SELECT 1) TO PROGRAM 'touch /tmp/evil'", "SELECT * FROM disease"),
        "WITH x AS (DELETE FROM public.disease RETURNING *) SELECT * FROM x",
    ],
    "mariadb": [
        *("DELETE FROM disease", "CREATE TABLE evil (a INT)", "TRUNCATE accounts", "DROP TABLE accounts"),
        *("SELECT 1 INTO OUTFILE '/tmp/evil'", "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE disease"),
        *("INSERT INTO other_schema.notes VALUES (2, 'x')", "SELECT 1; DELETE FROM disease"),
    ],
}


def test_the_connection_only_reads_whatever_it_is_told(served: Served) -> None:
    before = served.everything()
    with served_session(served) as session:
        for sql in BEYOND_THE_TREE[served.kind]:
            try:
                session.run(sql, 1.0)
            except session.errors:
                continue
            raise AssertionError(f"{sql} ran")
        if served.kind == "mariadb":
            assert session.run("SELECT LOAD_FILE('/etc/passwd')", 1.0)[1] == [(None,)]
    assert served.everything() == before


@contextmanager
def served_session(served: Served) -> Iterator[server_worker.Duck | server_worker.Served]:
    """A worker's connection, in this process."""
    with served.open() as database:
        settings: Settings = {**database._settings}  # pyright: ignore[reportAssignmentType]
    session = (server_worker.Duck if served.kind == "duckdb" else server_worker.Served)(settings)
    try:
        yield session
    finally:
        session.close()


def test_the_secret_is_there_for_its_owner(served: Served) -> None:
    assert served.owner("SELECT login FROM accounts") == [(SECRET,)]


# --- time and faults

SLOW = [
    f"{ENDLESS} SELECT COUNT(*) FROM n",
    "SELECT COUNT(*) FROM drugs_info a, drugs_info b, drugs_info c, drugs_info d "
    "WHERE a.price + b.price > c.price * d.id",
]


@pytest.mark.parametrize("sql", SLOW, ids=lambda sql: sql[:30])
def test_a_slow_query_ends_at_the_limit(served: Served, database: Database, sql: str) -> None:
    if served.kind == "mariadb" and sql.startswith("WITH"):
        return  # MariaDB ends a recursion after 1000 rounds itself
    started_s = time.monotonic()
    result = database.query_sync(sql)
    assert "stopped after 1 s" in (result.error or "") or "memory" in (result.error or "")
    assert time.monotonic() - started_s < 8
    assert database.query_sync("SELECT COUNT(*) FROM disease").rows == [[2]]


ACTIVE = {
    "postgresql": "SELECT COUNT(*) FROM pg_stat_activity WHERE usename = 'keeper' AND state = 'active'",
    "mariadb": "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'keeper' AND command = 'Query'",
}


def test_a_statement_stopped_by_the_server_leaves_none_behind(served: Served, database: Database) -> None:
    if served.kind in ACTIVE:
        database.query_sync(SLOW[1])
        assert served.owner(ACTIVE[served.kind]) == [(0,)]


@pytest.mark.long
def test_a_server_that_goes_away_is_a_fault_and_one_that_comes_back_serves(tmp_path: Path) -> None:
    with postgres_server() as address:
        served = _postgres(address)
        database = served.open()
        assert database.query_sync("SELECT COUNT(*) FROM disease").rows == [[2]]
        with psycopg.connect(address, autocommit=True) as db:
            db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'keeper'")
        assert database.query_sync("SELECT COUNT(*) FROM disease").rows == [[2]]  # a lost idle connection is made again
        pid = int((served.folder / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGINT)
        with pytest.raises(DatabaseFault, match="database postgresql://keeper@"):
            for _ in range(50):
                database.query_sync("SELECT COUNT(*) FROM disease")
                time.sleep(0.1)
        database.close()


BROKEN_OFF = {
    "postgresql": ["SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'keeper'"],
    "mariadb": ["KILL CONNECTION USER keeper", "KILL QUERY USER keeper"],
}


@pytest.mark.long
def test_a_statement_that_the_server_breaks_off_is_a_fault(served: Served) -> None:
    for sql in BROKEN_OFF.get(served.kind, []):
        with served.open(timeout_s=30) as database, ThreadPoolExecutor(1) as thread:
            assert database.query_sync("SELECT COUNT(*) FROM disease").rows == [[2]]
            answer = thread.submit(database.query_sync, SLOW[1])
            while not served.owner(ACTIVE[served.kind])[0][0]:
                assert not answer.done()
            served.owner(sql)
            with pytest.raises(DatabaseFault, match="is the server up"):
                answer.result()
            assert database.query_sync("SELECT COUNT(*) FROM disease").rows == [[2]]


def test_a_duckdb_file_that_goes_away_is_a_fault(tmp_path: Path) -> None:
    with _duck(tmp_path / "gone.duckdb").open() as database:
        assert database.query_sync("SELECT COUNT(*) FROM disease").rows == [[2]]
        (tmp_path / "gone.duckdb").unlink()
        with pytest.raises(DatabaseFault, match="gone"):
            database.query_sync("SELECT COUNT(*) FROM disease")


# --- what is refused before


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        ({"url": "postgresql://reader:secret@host/shop"}, "DATABASE_PASSWORD"),
        ({"url": "mysql://reader@host/shop?password=secret"}, "DATABASE_PASSWORD"),
        ({"url": "oracle://host/shop"}, "oracle is none of duckdb://, postgresql://, mysql://, mariadb://"),
        ({"url": "duckdb://host/shop"}, "duckdb:///FILE"),
        ({"url": "duckdb:///a.duckdb", "path": "a.db"}, "database.path = 'a.db' stands beside database.url"),
        ({"url": "duckdb:///a.duckdb", "folder": "dbs"}, "database.folder = 'dbs' stands beside database.url"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused(tree: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match="database") as caught:
        DatabaseConfig.model_validate(tree)
    assert says in str(caught.value) and "secret" not in str(caught.value).split("[type=")[0]


def test_a_role_that_may_do_too_much_is_refused(postgres: str) -> None:
    served = _postgres(postgres)
    config = served.config().model_copy(update={"url": served.url.replace("keeper@", "postgres@")})
    with Database(config, config.url) as database, pytest.raises(UserError, match="make a role that has SELECT"):
        database.check()


@pytest.mark.long
def test_an_unknown_table_and_a_server_that_is_not_there(served: Served) -> None:
    with served.open(tables=["nothing"]) as database, pytest.raises(UserError, match="no table nothing; there are: "):
        database.check()
    config = DatabaseConfig(url="postgresql://reader@127.0.0.1:9/shop", tables=[])
    with Database(config, config.url) as database, pytest.raises(UserError, match="is the server up"):
        database.check()


def test_the_order_of_rows_is_read_in_the_dialect(served: Served) -> None:
    quoted = "`group`" if served.kind == "mariadb" else '"group"'
    dialect = served.config().dialect
    assert is_ordered(f"SELECT {quoted} FROM t ORDER BY {quoted} LIMIT 3", dialect)
    assert not is_ordered(f"SELECT {quoted} FROM t", dialect)
