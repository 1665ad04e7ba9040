"""A user's raw file, with tables of their own: bad rows are named, SQL is run read-only, and the command reports it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from foundation.errors import UserError
from sql_agent.data.dataset import load_questions
from sql_agent.data.import_raw import import_raw
from tests.typed import app_of


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "qid": f"q{number}",
        "task_type": "shop",
        "question": f"Which city has shop {number}?",
        "sql": [f"SELECT city FROM shops WHERE id = {number}"],
        "ground_truth": f"city {number}",
        **changes,
    }


def write(path: Path, *rows: Any) -> Path:
    lines = [line if isinstance(line, bytes) else json.dumps(line, ensure_ascii=False).encode() for line in rows]
    path.write_bytes(b"\n".join(lines))
    return path


@pytest.fixture
def shops(tmp_path: Path) -> Path:
    path = tmp_path / "shops #1?.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE shops (id INTEGER PRIMARY KEY, city TEXT)")
        db.executemany("INSERT INTO shops VALUES (?, ?)", [(i, f"city {i}") for i in range(1, 31)])
        db.execute("INSERT INTO shops VALUES (99, NULL)")
        db.commit()
    return path


def test_bad_lines_are_named_and_the_others_used(tmp_path: Path, shops: Path) -> None:
    bad = [
        b"{oops",
        row(2, question=None),
        {"question": "no id?"},
        row(4, sql={"a": 1}),
        row(1, question="Another question?"),
        b'{"qid": "u", "question": "\xff"}',
        row(7, meta={"split": "dev"}),
        row(8, evidence=[{"source_table": "shops"}]),
    ]
    imported = import_raw(write(tmp_path / "raw.jsonl", row(1), *bad, row(9)), shops)
    reasons = {entry.row: entry.reason for entry in imported.bad}
    assert list(reasons) == [2, 3, 4, 5, 6, 7, 8, 9]
    expected = ["not JSON", "question is null", "`id` is missing", "sql", "duplicate of row 1", "not UTF-8", "'dev'"]
    assert all(part in reasons[line] for line, part in enumerate(expected, start=2))
    assert "evidence.0.row_id" in reasons[9]
    assert sorted(q.id for split in imported.splits for q in imported.questions(split)) == ["q1", "q9"]


def test_no_good_line_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="(?s)none of 2 rows.*row 1: not JSON.*row 2: question is null"):
        import_raw(write(tmp_path / "raw.jsonl", b"x", row(2, question=None)), None)


def test_duplicates_are_merged_and_conflicts_named(tmp_path: Path) -> None:
    def cell(number: int) -> list[dict[str, Any]]:
        return [{"source_table": "shops", "row_id": number, "field": "city", "quote": "c"}]

    rows = [
        row(1, evidence=cell(1), ground_truth=None),
        row(2, question=row(1)["question"] + " ", evidence=cell(2), ground_truth="A"),
        row(3, question=row(1)["question"], ground_truth="B"),
        row(4, ground_truth=None),
    ]
    imported = import_raw(write(tmp_path / "raw.jsonl", *rows), None, val_share=0, test_share=0)
    assert imported.n_merged == 2
    assert [entry.row for entry in imported.conflicts] == [3]
    assert imported.n_without_answer == 1
    first = imported.questions("train")[0]
    assert first.answer == "A"
    assert [piece.row_id for piece in first.evidence] == [1, 2]


def test_reference_sql_is_run_read_only(tmp_path: Path, shops: Path) -> None:
    before = shops.read_bytes()
    queries = [
        "SELECT city FROM shops WHERE id = 1",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT COUNT(*) FROM n",
        "SELECT nope FROM shops",
        "SELECT city FROM shops WHERE id = 1000",
        "SELECT city FROM shops WHERE id = 99",
        "DELETE FROM shops",
        f"ATTACH '{tmp_path / 'made.db'}' AS made",
        "PRAGMA user_version = 3",
        "SELECT 1; DROP TABLE shops",
        "SELECT '\x00'",
        "",
    ]
    rows = [row(i, sql=[sql]) for i, sql in enumerate(queries, start=1)]
    imported = import_raw(write(tmp_path / "raw.jsonl", *rows), shops)
    assert [entry.row for entry in imported.failing_sql] == [3, 4, 5, 6, 7, 8, 9, 10, 11]
    reasons = {entry.row: entry.reason for entry in imported.failing_sql}
    assert "no such column: nope" in reasons[3]
    assert all("returns nothing" in reasons[line] for line in (4, 5))
    assert all("not authorized" in reasons[line] for line in (6, 7, 8))
    assert imported.n_sql == len(queries)
    assert shops.read_bytes() == before
    assert not (tmp_path / "made.db").exists()


def test_an_endless_query_ends(tmp_path: Path, shops: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sql_agent.data.import_raw.SQL_TIMEOUT_S", 0.05)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT COUNT(*) FROM n"
    imported = import_raw(write(tmp_path / "raw.jsonl", row(1, sql=[endless]), row(2)), shops)
    assert [(entry.row, entry.reason[:11]) for entry in imported.failing_sql] == [(1, "interrupted")]


def test_unusable_databases(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw.jsonl", row(1))
    (tmp_path / "text.db").write_text("not a database, only some text that is long enough")
    for name, message in (("absent.db", "no such database"), ("text.db", "not a database; name a whole SQLite file")):
        with pytest.raises(UserError, match=message):
            import_raw(raw, tmp_path / name)


def test_the_command_with_a_users_data(tmp_path: Path, shops: Path) -> None:
    rows = [row(i) for i in range(1, 31)] + [row(31, sql=["SELECT [x"])]
    raw = write(tmp_path / "raw.jsonl", *rows, b"broken [line]")
    arguments = ["--raw", str(raw), "--database", str(shops), "--out", str(tmp_path / "out" / "deep")]
    done = CliRunner().invoke(app_of("data"), [*arguments, "--val-share", "0.2", "--test-share", "0.2"])
    assert done.exit_code == 0, done.output
    assert "skipped rows: 1" in done.output
    assert "row 32: not JSON" in done.output
    assert "row 31: " in done.output
    assert "[x" in done.output
    sizes = {name: len(load_questions(tmp_path / f"out/deep/{name}.parquet")) for name in ("train", "val", "test")}
    assert sizes == {"train": 19, "val": 6, "test": 6}


def test_the_command_survives_a_target_that_cannot_be_written(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw.jsonl", row(1))
    for out in (raw, raw / "below"):
        done = CliRunner().invoke(app_of("data"), ["--raw", str(raw), "--out", str(out)])
        assert done.exit_code == 2
        assert str(raw) in done.output
        assert isinstance(done.exception, SystemExit)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--raw", "absent.jsonl", "--out", "out"], "absent.jsonl: does not exist"),
        (["--raw", "absent.jsonl"], "--raw without --out"),
        (["--database", "x.db"], "only used with --raw"),
        (["--val-share", "0.3"], "--seed: only used with --raw or import"),
        (["--raw", "absent.jsonl", "--out", "out", "--force"], "--force: only used for the bundled data"),
    ],
)
def test_the_command_explains_wrong_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app_of("data"), arguments)
    assert done.exit_code == 2
    assert message in done.output
    assert not list(tmp_path.iterdir())
