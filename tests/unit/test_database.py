"""The Database as its users see it: cleaned input, helpful errors, cut results, concurrency, and faults of the file."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import re
import resource
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from foundation.errors import UserError
from sql_agent.config import ROOT, DatabaseConfig
from sql_agent.environment.database import N_FULL, N_SHORT, Database
from sql_agent.environment.sql_text import as_written, explain_reply
from sql_agent.environment.sql_worker import Reply
from sql_agent.errors import DatabaseFault
from sql_agent.records import QueryResult
from tests.sql_db import N_DRUGS, make_database, open_database

SLOW = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
ANSWERABLE = "SELECT med_name FROM drugs_info WHERE id = 7"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_database(tmp_path)


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    with open_database(path, timeout_s=1.0) as database:
        yield database


def workers() -> list[psutil.Process]:
    return [p for p in psutil.Process().children() if any("sql_worker" in part for part in p.cmdline())]


# --- input


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1;",
        "  select 1 ;; ；\n",
        ";SELECT 1",
        "```sql\nSELECT 1;\n```",
        "```\nSELECT 1\n```  ",
        "```sql SELECT 1```",
        "```SELECT 1",
        "```SELECT\n1\n```",
        "``` sql\nSELECT 1\n```",
        "```sqlite3 SELECT 1```",
        "```\n-- a; b\n; SELECT 1```",
        "/* a; b */; SELECT 1",
        "SELECT （1）；",
        "SELECT　1",
        "\ufeffSELECT 1",
        "-- first\nSELECT 1 -- last",
        "/* a */ SELECT /* b */ 1 /* open",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "SELECT 1" + " " * 19_992,
    ],
    ids=lambda sql: repr(sql)[:40],
)
def test_input_is_cleaned(database: Database, sql: str) -> None:
    assert database.query_sync(sql).rows == [[1]]


def test_full_width_marks_inside_a_literal_stay(database: Database) -> None:
    assert database.query_sync("SELECT '（；，' ， \"disease\".id FROM disease；").rows[0] == ["（；，", 1]


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (None, "must be a string, not NoneType"),
        (7, "must be a string, not int"),
        (b"SELECT 1", "must be a string, not bytes"),
        (["SELECT 1"], "must be a string, not list"),
        ("", "empty"),
        (" ；;\n", "empty"),
        ("```sql\n```", "empty"),
        ("SELECT '\0'", "NUL"),
        ("SELECT '\ud800'", "surrogate"),
        ("SELECT 1" + " " * 19_993, "20,001 characters"),
        ("SELEC 1", "only a single SELECT over drugs_info, disease is allowed"),
        ("SELECT ?", "bindings"),
        ("SELECT (", "incomplete input"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_unusable_input_is_a_clear_error(database: Database, sql: object, says: str) -> None:
    result = database.query_sync(sql)
    assert says in (result.error or "")


# --- errors


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT * FROM drug_info", "no such table: drug_info; did you mean drugs_info?; columns of drugs_info: id,"),
        ("SELECT * FROM diseases", "did you mean disease?; columns of disease: id, disease_name, overview"),
        ("SELECT * FROM zzz", "tables: drugs_info, disease"),
        ("SELECT drug_name FROM drugs_info", "did you mean med_name?; columns of drugs_info: id, med_name"),
        ("SELECT d.desease_name FROM disease d", "no such column: d.desease_name; did you mean disease_name?"),
        ("SELECT id FROM drugs_info, disease", "ambiguous column name: id"),
        ("SELECT zeroblob(1)", "the function zeroblob is not available"),
        ("SELECT printf('%1000d', 1)", "printf fields of 999"),
        ("SELECT json_group_array(id) FROM disease", "is not available; use group_concat(x, ',')"),
        ("SELECT sql FROM sqlite_master", "columns of disease: id, disease_name, overview"),
        (SLOW, "stopped after 1 s"),
        ("SELECT " + "x" * 9_000, "…"),
        ("SELECT * FROM disease WHERE disease_name ILIKE '%x%'", "SQLite has no ILIKE: LIKE"),
        ("SELECT TOP 5 * FROM disease", "LIMIT"),
        ("SELECT CONCAT(id, 'x') FROM disease", "||"),
        ("SELECT NOW()", "datetime('now')"),
        ("SELECT LENGHT('a')", "no such function: LENGHT; did you mean length?"),
        ("SELECT * FROM disease WHERE disease_name = “高血压”", "straight quotes"),
        ("SELECT id FROM disease ORDER disease_name", 'near "disease_name": syntax error'),
        ("SELECT ‘a b’", "straight quotes"),
        ("SELECT " + " OR ".join(["1"] * 1_500), "IN (a, b, ...)"),
    ],
    ids=lambda value: value[:40],
)
def test_errors_help_the_model(database: Database, sql: str, says: str) -> None:
    error = database.query_sync(sql).error or ""
    assert says in error and len(error) < 600


def test_a_name_that_is_a_word_of_sql_is_told_to_be_quoted() -> None:
    reply: Reply = {"kind": "error", "message": 'near "order": syntax error'}
    said = {table: explain_reply(reply, sql="", schema={table: ["id"]}, timeout_s=1.0) for table in ("Order", "sales")}
    assert said["Order"].endswith('write the name as "order", in double quotes') and "quotes" not in said["sales"]


def test_names_are_told_as_a_query_writes_them(tmp_path: Path) -> None:
    """Quotes stand where SQLite needs them and nowhere else: a model copies what it is shown."""
    plain, odd = ["id", "naïve", "路線", "Größe_2", "date"], ["order", "Länge (km)", "e-mail", "2nd", "１，２", 'a"b']
    columns = [*plain, *(f'"{name.replace(chr(34), 2 * chr(34))}"' for name in odd)]
    with sqlite3.connect(tmp_path / "odd.db") as connection:
        connection.execute(f'CREATE TABLE "Zähler-Stand" ({", ".join(columns)})')
    connection.close()
    with open_database(tmp_path / "odd.db", tables=["Zähler-Stand"]) as database:
        assert as_written(database.schema(), "sqlite") == {'"Zähler-Stand"': columns}
        assert database.query_sync(f'SELECT {", ".join(columns)} FROM "Zähler-Stand"').columns == [*plain, *odd]
        assert not database.query_sync("SELECT １，２ FROM [Zähler-Stand]").ok  # full-width marks are made plain
        error = database.query_sync("SELECT [Länge (m)] FROM [Zähler-Stand]").error or ""
        assert 'did you mean "Länge (km)"' in error and f'columns of "Zähler-Stand": {", ".join(columns)}' in error


def test_a_hint_is_for_the_statement_and_not_for_its_texts(database: Database) -> None:
    error = database.query_sync("SELECT nocolumn, 'ILIKE', \"now()\" FROM disease WHERE id = '“”' -- concat()").error
    assert (error or "").endswith("columns of disease: id, disease_name, overview")


def test_a_reference_is_found_once_and_an_error_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sql_agent.environment.database.MOST_REFERENCES", 2)
    monkeypatch.setattr("sql_agent.environment.database.MOST_CELLS", 2)
    asked: list[object] = []
    with open_database(path) as database:
        query = database.query

        def counted(sql: object) -> Any:
            asked.append(sql)
            return query(sql)

        monkeypatch.setattr(database, "query", counted)
        for sql in ("SELECT 1", "SELECT 2", "SELECT 1", "SELECT nocolumn", "SELECT nocolumn", "SELECT 3", "SELECT 1"):
            asyncio.run(database.reference(sql))
        asyncio.run(database.reference("SELECT 2"))  # had been asked for least lately
        asyncio.run(database.reference("SELECT 1, 2, 3"))  # too much to keep
        asyncio.run(database.reference("SELECT 1, 2, 3"))
    asked_again = ["SELECT 2", "SELECT 1, 2, 3", "SELECT 1, 2, 3"]
    assert asked == ["SELECT 1", "SELECT 2", "SELECT nocolumn", "SELECT nocolumn", "SELECT 3", *asked_again]


# --- results


def test_rows_beyond_the_limit_are_cut_and_marked(path: Path) -> None:
    with open_database(path, max_rows=5) as database:
        cut = database.query_sync("SELECT id FROM drugs_info ORDER BY id")
        exact = database.query_sync("SELECT id FROM drugs_info WHERE id <= 5 ORDER BY id")
    assert (cut.rows, cut.truncated) == ([[1], [2], [3], [4], [5]], True)
    assert (exact.rows, exact.truncated) == (cut.rows, False)


def test_a_large_result_is_cut(database: Database) -> None:
    wide = "replace(hex(zero), '0', 'abcdefghi')"
    result = database.query_sync(f"SELECT {wide} AS big FROM (SELECT indication AS zero FROM drugs_info)")
    sizes = [len(row[0]) for row in result.rows]
    assert result.ok and max(sizes) <= 10_001 and sum(sizes) < 220_000

    long = "WITH RECURSIVE s(x) AS (SELECT 'ab' UNION ALL SELECT x || x FROM s WHERE length(x) < 90000) "
    cell = database.query_sync(long + "SELECT max(x) FROM s").rows[0][0]
    assert len(cell) == 10_001 and cell.endswith("b…")
    many = database.query_sync(long + "SELECT m.x FROM (SELECT max(x) AS x FROM s) m, drugs_info")
    assert many.truncated and 20 <= len(many.rows) <= 22


def test_values_become_json_safe(database: Database) -> None:
    result = database.query_sync("SELECT x'00ff', 9e999, -9e999, NULL, 1.5, 9223372036854775807, CAST(x'ff41' AS TEXT)")
    assert result.rows == [["x'00ff'", "inf", "-inf", None, 1.5, 9223372036854775807, "\ufffdA"]]
    assert type(result).model_validate_json(result.model_dump_json()) == result


def test_equal_columns_get_names_of_their_own(database: Database) -> None:
    result = database.query_sync("SELECT a.id, b.id, 3 AS id_2, 4 AS id FROM disease a, disease b WHERE a.id < b.id")
    assert (result.columns, result.rows) == (["id", "id_3", "id_2", "id_4"], [[1, 2, 3, 4]])
    long = ", ".join(f"{n} AS {'x' * 120}" for n in range(140))
    assert len(set(database.query_sync(f"SELECT {long}").columns)) == 140


def test_a_cell_of_a_wide_result_gets_its_share_of_the_characters(database: Database) -> None:
    cells = ", ".join(["'药' || substr(group_concat(indication), 1, 9000)"] * 100)
    result = database.query_sync(f"SELECT {cells} FROM drugs_info")
    assert {len(cell) for cell in result.rows[0]} == {2001} and result.rows[0][0].startswith("药发热")


def test_a_long_column_name_is_cut(database: Database) -> None:
    assert [len(name) for name in database.query_sync("SELECT '" + "x" * 5_000 + "'").columns] == [101]


# --- concurrency and processes


def test_fifty_parallel_queries_and_one_cancelled(path: Path) -> None:
    async def run(database: Database) -> None:
        tasks = [
            asyncio.create_task(database.query(f"SELECT {n}, med_name FROM drugs_info WHERE id = {n}"))
            for n in range(1, 51)
        ]
        slow = asyncio.create_task(database.query(SLOW))
        await asyncio.sleep(0.05)
        slow.cancel()
        tasks[-1].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for n, result in enumerate(results[:-1], start=1):
            assert not isinstance(result, BaseException) and result.rows == [[n, f"药品{n:03d}"]]
        with pytest.raises(asyncio.CancelledError):
            await slow

    before = len(os.listdir("/proc/self/fd"))
    with open_database(path, timeout_s=0.5) as database:
        for _ in range(3):  # one event loop after the other
            asyncio.run(run(database))
        assert len(workers()) <= N_FULL + N_SHORT
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # the first event loop may leave a selector to the collector
    assert workers() == []


def test_a_lookup_does_not_wait_for_what_is_slow(path: Path) -> None:
    async def run(database: Database) -> float:
        slow = [asyncio.create_task(database.query(SLOW)) for _ in range(64)]
        await asyncio.sleep(0)
        started_s = time.monotonic()
        assert (await database.query(ANSWERABLE)).rows == [["药品007"]]
        elapsed_s = time.monotonic() - started_s
        for task in slow:
            task.cancel()
        return elapsed_s

    with open_database(path, timeout_s=0.5) as database:
        assert asyncio.run(run(database)) < 8 * 0.5


def test_a_wait_has_an_end_that_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(database: Database) -> list[QueryResult | BaseException]:
        return await asyncio.gather(*(database.query(SLOW) for _ in range(5 * N_FULL)), return_exceptions=True)

    monkeypatch.setattr("sql_agent.environment.database.LONGEST_WAIT", 2)
    with open_database(path, timeout_s=0.4) as database:
        results = asyncio.run(run(database))
    ran = [r for r in results if isinstance(r, QueryResult) and "stopped after 0.4 s" in (r.error or "")]
    told = [r for r in results if isinstance(r, DatabaseFault) and "waited" in str(r) and "may wait 0.8 s" in str(r)]
    assert len(ran) >= N_FULL and told and len(ran) + len(told) == len(results)


@pytest.mark.parametrize("when", ["idle", "busy"])
def test_a_killed_worker_is_replaced(database: Database, when: str) -> None:
    assert database.query_sync(ANSWERABLE).rows == [["药品007"]]
    future = ThreadPoolExecutor(1).submit(database.query_sync, SLOW) if when == "busy" else None
    time.sleep(0.2)
    for worker in workers():
        worker.kill()
        worker.wait(5)
    if future:
        assert "ended the database process" in (future.result().error or "")
    assert database.query_sync(ANSWERABLE).rows == [["药品007"]]


def test_an_ordinary_timeout_keeps_its_worker(database: Database) -> None:
    database.query_sync("SELECT 1")
    before = [worker.pid for worker in workers()]
    assert "stopped after" in (database.query_sync(SLOW).error or "")
    assert [worker.pid for worker in workers()] == before


def test_a_stopped_worker_counts_as_a_timeout(database: Database) -> None:
    database.query_sync("SELECT 1")
    for worker in workers():
        worker.suspend()
    started_s = time.monotonic()
    assert "stopped after 1 s" in (database.query_sync("SELECT 1").error or "")
    assert time.monotonic() - started_s < 10  # it would stay stopped for ever
    assert database.query_sync("SELECT 1").rows == [[1]]


def _query_in_child(database: Database, queue: multiprocessing.SimpleQueue[list[list[object]]]) -> None:
    queue.put(database.query_sync("SELECT 2").rows)
    database.close()


@pytest.mark.long
def test_a_dropped_database_ends_its_workers(path: Path) -> None:
    open_database(path).query_sync("SELECT 1")
    gc.collect()
    assert workers() == []


def test_a_worker_needs_one_descriptor_and_no_pipe(database: Database) -> None:
    before = open_files()
    database.query_sync("SELECT 1")
    (new,) = (open_files() - before).elements()
    assert new.startswith("socket:")


def open_files() -> Counter[str]:
    folder = Path("/proc/self/fd")
    return Counter(os.readlink(folder / name) for name in os.listdir(folder) if (folder / name).exists())


def test_no_thread_to_be_had_is_a_fault(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_self: object) -> None:
        raise RuntimeError("can't start new thread")  # Linux counts threads per user; root has no such limit

    monkeypatch.setattr("threading.Thread.start", no_thread)
    with pytest.raises(DatabaseFault, match="medical.db: can't start new thread"):
        database.query_sync("SELECT 1")


@pytest.mark.parametrize("n_free", range(5))
def test_exhausted_descriptors_are_a_fault_and_no_crash(database: Database, n_free: int) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = os.dup(0)  # the lowest number that is free
    os.close(highest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + n_free, limits[1]))
    try:
        with pytest.raises(DatabaseFault, match="medical.db: .*did not start .*Too many open files"):
            database.query_sync("SELECT 1")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert database.query_sync("SELECT 1").rows == [[1]]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12; this is the case under test
def test_a_forked_child_gets_workers_of_its_own(database: Database) -> None:
    assert database.query_sync("SELECT 1").rows == [[1]]
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.SimpleQueue[list[list[object]]] = context.SimpleQueue()
    child = context.Process(target=_query_in_child, args=(database, queue))
    child.start()
    child.join(20)
    assert child.exitcode == 0 and queue.get() == [[2]]
    assert database.query_sync("SELECT 3").rows == [[3]]


@pytest.mark.long
@pytest.mark.parametrize("pipe_held", [False, True], ids=["alone", "another process holds the pipe"])
def test_the_worker_ends_with_its_parent(path: Path, pipe_held: bool) -> None:
    script = (
        "import os, psutil, signal, sys, time\n"
        "from tests.sql_db import Path, open_database\n"
        "database = open_database(Path(sys.argv[1]))\n"
        "database.query_sync('SELECT 1')\n"
        "print(psutil.Process().children()[0].pid, flush=True)\n"
        f"sleeper = os.fork() if {pipe_held} else 1\n"
        "time.sleep(6) if sleeper == 0 else os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    with process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert process.wait() == -signal.SIGKILL
        deadline_s = time.monotonic() + 5
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)


def test_the_worker_sees_no_secret_of_the_environment(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEACHER_API_KEY", "sk-not-for-workers")
    database.query_sync("SELECT 1")
    assert [worker.environ().get("TEACHER_API_KEY") for worker in workers()] == [None]


# --- faults of the database


def _delete(path: Path) -> None:
    path.unlink()


def _replace(path: Path) -> None:
    copy = path.with_suffix(".new")
    shutil.copy(path, copy)
    copy.rename(path)


def _change(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM disease")


@pytest.mark.parametrize("harm", [_delete, _replace, _change])
def test_a_file_replaced_or_changed_mid_run_is_a_fault(
    database: Database, path: Path, harm: Callable[[Path], None]
) -> None:
    assert database.query_sync(ANSWERABLE).ok
    harm(path)
    for sql in (ANSWERABLE, "SELECT nonsense"):
        with pytest.raises(DatabaseFault, match=r"medical.db: (it is gone|the file was replaced or changed)"):
            database.query_sync(sql)


def test_a_lock_is_one_clear_error(database: Database, path: Path) -> None:
    assert database.query_sync(ANSWERABLE).ok
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UserError, match="locked by another process"):
            database.check()
        with pytest.raises(DatabaseFault, match="locked"):
            database.query_sync(ANSWERABLE)
        other.execute("ROLLBACK")
    assert database.query_sync(ANSWERABLE).ok


def _cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:50])


def _scribble(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))


def _wal(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (_delete, "no such file; name a file of SQLite"),
        (_cut_short, "not a SQLite database; name a file of SQLite"),
        (lambda path: path.write_bytes(b""), "empty, 0 bytes; name a file of SQLite"),
        (lambda path: path.write_text("id,name\n" * 99), "not a SQLite database"),
        (_scribble, "(malformed|corrupt).*save what can be read: sqlite3 FILE .recover"),
        (_wal, "PRAGMA journal_mode=DELETE"),
        (_folder, "cannot be read"),
    ],
)
def test_an_unusable_file_is_named_at_the_start_and_is_a_fault_later(
    database: Database, path: Path, harm: Callable[[Path], object], says: str
) -> None:
    harm(path)
    with pytest.raises(UserError, match=f"medical.db: .*({says})"):
        database.check()
    with pytest.raises(DatabaseFault, match=f"medical.db: .*({says})"):
        database.query_sync(ANSWERABLE)
    assert workers() == []


def test_what_is_said_of_wal_mode_helps_as_it_is_written(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    wal = path.rename(folder / "medical.db")
    _wal(wal)
    with open_database(wal) as database, pytest.raises(UserError) as refused:
        database.check()
    switch, copy = (shlex.split(part) for part in re.findall(r"sqlite3 .*?(?=; while|$)", str(refused.value)))
    with closing(sqlite3.connect(wal)) as holder, closing(sqlite3.connect(wal)) as db:
        holder.execute("BEGIN").execute("SELECT 1 FROM disease").fetchall()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            db.execute(switch[2])
        db.execute(copy[2].replace("COPY.db", str(tmp_path / "COPY.db")))
    with closing(sqlite3.connect(switch[1])) as db:
        db.execute(switch[2])
    for file in (wal, tmp_path / "COPY.db"):
        with open_database(file) as database:
            database.check()


def test_a_trigger_may_have_the_name_of_a_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TRIGGER disease AFTER INSERT ON accounts BEGIN DELETE FROM accounts; END")
    with open_database(path) as database:
        database.check()
        assert database.query_sync("SELECT count(*) FROM disease").rows == [[2]]


def test_a_table_with_a_very_long_definition_opens(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE noted (id INTEGER /* {'x' * 50_000} */, note TEXT)")
    with open_database(path, tables=["noted"]) as database:
        assert database.schema() == {"noted": ["id", "note"]}


def test_a_missing_table_names_those_there_are(path: Path) -> None:
    with open_database(path, tables=["drugs_info", "drugs"]) as database:
        with pytest.raises(
            UserError, match="no table drugs; there are: accounts, disease, drug_index, drugs_info, logins"
        ):
            database.check()
        with pytest.raises(DatabaseFault, match="no table drugs; there are: .*. database.tables names those to read"):
            database.query_sync(ANSWERABLE)


def test_a_view_needs_the_tables_below_it(path: Path) -> None:
    with open_database(path, tables=["logins"]) as database, pytest.raises(UserError, match="add that table"):
        database.check()
    with open_database(path, tables=["LOGINS", "Accounts"]) as database:
        database.check()
        assert database.query_sync("SELECT count(*) FROM logins").rows == [[1]]


def test_a_full_text_index_needs_the_table_that_it_indexes(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE VIRTUAL TABLE found USING fts5 (disease_name, content = disease, content_rowid = id)")
        db.execute("INSERT INTO found (found) VALUES ('rebuild')")
    with open_database(path, tables=["found"]) as database, pytest.raises(UserError, match="add that table"):
        database.check()
    with open_database(path, tables=["found", "disease"]) as database:
        database.check()
        assert database.query_sync("SELECT disease_name FROM found WHERE found MATCH '高血压'").rows == [["高血压"]]
        assert database.query_sync("SELECT * FROM found_data").error


def test_a_relative_path_stays_the_same_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with open_database(Path(path.name)) as database:
        assert database.query_sync(ANSWERABLE).ok
        monkeypatch.chdir("/")
        assert database.query_sync(ANSWERABLE).ok


def test_an_unusual_path_works(tmp_path: Path) -> None:
    path = make_database(tmp_path).rename(tmp_path / "a b#c?mode=rw&d%20'医.db")
    with open_database(path) as database:
        database.check()
        assert database.query_sync("SELECT count(*) FROM drugs_info").rows == [[N_DRUGS]]
        assert database.query_sync("DELETE FROM drugs_info").error


def test_empty_tables_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "empty.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE a (x); CREATE TABLE b (x); INSERT INTO a VALUES (1)")
    with Database(DatabaseConfig(tables=["a", "b"]), path) as database:
        database.check()
    assert "no rows in b; fill it" in caplog.text
    with Database(DatabaseConfig(tables=["b"]), path) as database, pytest.raises(UserError, match="no rows in b"):
        database.check()
