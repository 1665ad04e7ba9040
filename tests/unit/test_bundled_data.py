"""The promises of the bundled data: enough drugs, diseases and questions, no empty column, no leak, nothing stale."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from sql_agent.data.build import ENTITIES, OUTPUTS, STAMP, build_bundled
from sql_agent.data.build_database import UNKNOWN
from sql_agent.data.dataset import load_questions
from sql_agent.data.templates import SPLITS
from sql_agent.records import Question


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundled")
    assert build_bundled(folder) is not None
    return folder


@pytest.fixture(scope="module")
def splits(bundled: Path) -> dict[str, list[Question]]:
    return {split: load_questions(bundled / f"{split}.parquet") for split in SPLITS}


def test_the_database_is_large_enough_and_filled(bundled: Path) -> None:
    with closing(sqlite3.connect(bundled / "medical.db")) as db:
        for table in ("drugs_info", "disease"):
            (rows,) = db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()
            assert rows >= 100
            for (column,) in db.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall():
                (filled,) = db.execute(f"SELECT COUNT({column}) FROM {table}").fetchone()
                expected = 0 if column in UNKNOWN else rows // 2 if column == "company_name" else rows
                assert filled == expected or (column == "company_name" and filled > expected), column


def test_there_are_enough_questions(splits: dict[str, list[Question]]) -> None:
    sizes = {split: len(questions) for split, questions in splits.items()}
    assert sum(sizes.values()) >= 2000
    assert sizes["train"] >= 1500
    assert sizes["val"] >= 150
    assert sizes["test"] >= 400
    assert all(q.answer and q.sql and q.evidence for questions in splits.values() for q in questions)


def test_no_entity_phrasing_or_text_is_in_two_splits(splits: dict[str, list[Question]]) -> None:
    for values in (
        {s: {(e.source_table, e.row_id) for q in qs for e in q.evidence} for s, qs in splits.items()},
        {s: {q.meta["phrasing"] for q in qs} for s, qs in splits.items()},
        {s: {q.question for q in qs} for s, qs in splits.items()},
    ):
        assert sum(map(len, values.values())) == len(set().union(*values.values()))


def test_entities_of_test_in_the_words_of_train(bundled: Path, splits: dict[str, list[Question]]) -> None:
    made = load_questions(bundled / ENTITIES)
    touched = {(e.source_table, e.row_id) for q in made for e in q.evidence}
    assert len(made) >= 400 and {q.question for q in made}.isdisjoint(q.question for q in splits["train"])
    assert touched <= {(e.source_table, e.row_id) for q in splits["test"] for e in q.evidence}
    assert {q.meta["phrasing"] for q in made} <= {q.meta["phrasing"] for q in splits["train"]}
    assert not any(q.meta["unseen_label"] for q in made)


def test_entities_are_split_about_70_10_20(splits: dict[str, list[Question]]) -> None:
    rows = {s: {(e.source_table, e.row_id) for q in qs for e in q.evidence} for s, qs in splits.items()}
    total = sum(map(len, rows.values()))
    for split, share in (("train", 0.7), ("val", 0.1), ("test", 0.2)):
        assert len(rows[split]) / total == pytest.approx(share, abs=0.04)


@pytest.mark.long
def test_a_second_build_does_nothing_and_a_forced_one_gives_the_same_bytes(bundled: Path) -> None:
    before = {name: (bundled / name).read_bytes() for name in (*OUTPUTS, STAMP)}
    inodes = {name: (bundled / name).stat().st_ino for name in OUTPUTS}
    assert build_bundled(bundled) is None
    assert build_bundled(bundled, force=True) is not None
    assert {path.name: path.read_bytes() for path in bundled.iterdir()} == before
    # A run that reads a database which is replaced ends.
    assert {name: (bundled / name).stat().st_ino for name in OUTPUTS} == inodes


@pytest.mark.long
def test_a_changed_or_missing_output_is_built_again(bundled: Path) -> None:
    before = (bundled / "val.parquet").read_bytes()
    (bundled / "val.parquet").write_bytes(b"changed")
    assert build_bundled(bundled) is not None
    (bundled / "medical.db").unlink()
    assert build_bundled(bundled) is not None
    assert (bundled / "val.parquet").read_bytes() == before


def test_the_module_that_make_data_runs_is_a_command() -> None:
    run = [sys.executable, "-m", "sql_agent.data.build", "--val-share", "much"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "val-share" in done.stderr
