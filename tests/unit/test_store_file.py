"""A store's file at its start: damaged ones are named with the remedy and left as they are; older ones get indexes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from agentlightning.types import EnqueueRolloutRequest

from agl_plugin.store.database import Database
from agl_plugin.store.sqlite import LastingStore, TableCollections
from foundation.errors import RunError
from foundation.net import free_port

PAGE = 4096


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    store = LastingStore(Database(path))
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input={"text": "x" * 500}) for _ in range(400)])
    await store.close()
    return path


def overwrite(path: Path, at: int, n: int, byte: bytes = b"\xa5") -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(byte * n)


def inner_page(path: Path) -> None:
    """The root of the rollouts' table."""
    with closing(sqlite3.connect(path)) as connection:
        root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'rollouts'").fetchone()[0]
    overwrite(path, (root - 1) * PAGE, PAGE)


def other_database(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text)")


def other_tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE rollouts")
        connection.execute("CREATE TABLE rollouts (note)")


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda path: overwrite(path, 0, 64), "Restore"),
        (inner_page, "Restore"),
        (lambda path: overwrite(path, path.stat().st_size // PAGE // 2 * PAGE, PAGE), "Restore"),
        (lambda path: overwrite(path, path.stat().st_size // PAGE // 2 * PAGE, PAGE, b"\0"), "Restore"),
        (lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]), "Restore"),
        (lambda path: path.write_text("what was said\n" * 1000), "Restore"),
        (other_tables, "not those of a store"),
        (other_database, "version 0, and this store reads 1"),
    ],
    ids=["header", "root", "page", "zeros", "cut", "text", "tables", "other"],
)
def test_a_damaged_file_is_named_and_left_as_it_is(path: Path, harm: Callable[[Path], None], says: str) -> None:
    harm(path)
    before = path.read_bytes()
    with pytest.raises(RunError, match=says) as caught:
        TableCollections(Database(path))
    assert str(path) in str(caught.value) and "--" in str(caught.value)
    assert harm is other_tables or path.read_bytes() == before
    with pytest.raises(RunError, match=says):  # and lets go of its lock
        TableCollections(Database(path))


@pytest.mark.long
def test_the_command_ends_with_the_reason_and_never_serves(path: Path) -> None:
    inner_page(path)
    command = [sys.executable, "-m", "agl_plugin.store", "--port", str(free_port()), "--path", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    text = done.stdout + done.stderr
    assert done.returncode not in (0, None) and "the file is damaged" in text and "Restore" in text
    assert "running" not in text and "Traceback" not in text


@pytest.mark.parametrize("harm", [lambda wal: wal.write_bytes(b"\0" * 9000), lambda wal: wal.write_bytes(b"")])
async def test_a_wal_of_zeros_costs_no_more_than_itself(path: Path, harm: Callable[[Path], None]) -> None:
    harm(path.with_name("store.db-wal"))
    store = LastingStore(Database(path))
    assert len(await store.query_rollouts(limit=1000)) == 400
    await store.close()


@pytest.mark.long
def test_a_locked_file_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(RunError, match="locked"):
            Database(path)


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_listing_by_start_time_reads_an_index_in_an_older_file_too(path: Path, order: str) -> None:
    with closing(sqlite3.connect(path)) as older:
        older.execute("DROP INDEX rollouts_by_start_time")
    database = Database(path)
    tables = TableCollections(database)
    chosen = tables.rollouts._rows.selection(None, {"name": "start_time", "order": order})
    sql = f"SELECT data FROM rollouts WHERE {chosen.where} ORDER BY {chosen.order} LIMIT 10 OFFSET 0"
    plan = [row[-1] for row in await database.read(f"EXPLAIN QUERY PLAN {sql}")]
    assert any("USING INDEX rollouts_by_start_time" in step for step in plan), plan
    assert not any(step == "USE TEMP B-TREE FOR ORDER BY" for step in plan), plan
    database.close()


async def test_one_store_has_the_file_under_whatever_name(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(path)
    (tmp_path / "hard.db").hardlink_to(path)
    first = Database(path)
    for name in ("store.db", "link.db", "hard.db"):
        with pytest.raises(RunError, match="another store has this file open"):
            Database(tmp_path / name)
    first.close()
    Database(tmp_path / "link.db").close()


@pytest.mark.parametrize("name", ["store.db/below.db", "n" * 300, "."])
def test_a_path_that_holds_no_file_is_named(path: Path, name: str) -> None:
    with pytest.raises(RunError, match="no store can be kept there .* Give another --path"):
        Database(path.parent / name)
