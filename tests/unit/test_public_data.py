"""Spider and BIRD as published, in folders of our own with their layout; and columns that nobody reads."""

from __future__ import annotations

import json
import logging
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from foundation.errors import UserError
from sql_agent.config import build_config, load_recipe
from sql_agent.data.dataset import load_questions
from sql_agent.data.public import read_public
from tests.typed import app_of


def database(folder: Path, name: str) -> None:
    path = folder / name / f"{name}.sqlite"
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE item (name TEXT)")
        db.execute("INSERT INTO item VALUES (?)", (f"thing of {name}",))


def dump(path: Path, rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows), encoding="utf-8")


def spider_rows(*names: str, sql: str = "SELECT name FROM item") -> list[dict[str, Any]]:
    return [
        {"db_id": name, "question": f"What is in {name}, {n}?", "query": sql, "query_toks": [], "sql": {"from": {}}}
        for name in names
        for n in range(3)
    ]


@pytest.fixture
def spider(tmp_path: Path) -> Path:
    folder, names = tmp_path / "spider", [f"shop_{n}" for n in range(12)]
    for name in names:
        database(folder / "database", name)
    dump(folder / "train_spider.json", spider_rows(*names[:9]) + spider_rows("shop_0", sql="SELECT nam FROM item"))
    dump(folder / "train_others.json", spider_rows("shop_9", "shop_10", sql="SELECT name FROM item WHERE name = ''"))
    dump(folder / "dev.json", spider_rows(names[11], names[0], sql="SELECT count(*) FROM item"))
    return folder


def test_whole_databases_of_spider_are_held_out(spider: Path) -> None:
    read = read_public("spider", spider)
    ids = {split: {question.db_id for question in rows} for split, rows in read.splits.items()}
    assert ids["test"] == {"shop_11", "shop_0"} and len(read.splits["test"]) == 6
    assert len(ids["val"]) == 1 and not ids["train"] & (ids["val"] | ids["test"]) and not ids["val"] & ids["test"]
    assert {q.scorer for q in read.splits["train"]} == {"sql_result"}
    assert {q.scorer for q in (*read.splits["val"], *read.splits["test"])} == {"spider_execution"}
    assert read.splits["train"][0].sql == ["SELECT name FROM item"]
    assert "6 training questions about databases of dev.json" in read.left_out
    assert sum("returns nothing" in text for text in read.left_out) == 6


def test_bird_brings_its_hints_and_two_folders(tmp_path: Path) -> None:
    bird = tmp_path / "bird"
    for split, names in (("train", "abcd"), ("dev", "ef")):
        rows = [
            {"db_id": name, "question": f"{name}?", "evidence": "a hint" if name == "e" else "", "SQL": "SELECT 1"}
            | ({"question_id": n, "difficulty": "simple"} if split == "dev" else {})
            for n, name in enumerate(names)
        ]
        dump(bird / split / f"{split}.json", rows)
        for name in names:
            database(bird / split / f"{split}_databases", name)
    read = read_public("bird", bird, val_share=0.25)
    test = {question.db_id: question for question in read.splits["test"]}
    assert (test["e"].question, test["f"].question) == ("e?\nHint: a hint", "f?")
    assert test["e"].task_type == "simple" and test["e"].scorer == "bird_execution"
    assert read.folders["train"].name == "train_databases" and read.folders["test"].name == "dev_databases"
    with pytest.raises(UserError, match=r"--test-share 0.3: dev.json is the test split"):
        read_public("bird", bird, test_share=0.3)
    (bird / "train" / "train.json").unlink()
    alone = read_public("bird", bird, val_share=0.0, test_share=0.5)
    assert {len({q.db_id for q in alone.splits[split]}) for split in ("train", "test")} == {1}


def test_the_command_writes_files_that_a_run_reads(spider: Path, tmp_path: Path) -> None:
    out = tmp_path / "made of it"
    done = CliRunner().invoke(app_of("data"), ["import", "spider", str(spider), "--out", str(out)])
    assert done.exit_code == 0, done.output
    train, evaluate = (shlex.split(line) for line in done.output.splitlines() if " agentgrpo " in line)
    assert train[3:5] == evaluate[3:5] == ["--recipe", str(out / "config.toml")]
    assert evaluate[7:9] == ["--split", str(out / "test.parquet")]
    assert "test: 6 questions about 2 databases" in done.output
    config = build_config(load_recipe(str(out / "config.toml")))
    assert config.database.folder == str(spider / "database")
    assert load_questions(config.data.train_file)[0].db_id.startswith("shop_")


WRONG = [
    (["import", "wikisql", "x", "--out", "y"], "expected `agentgrpo data import spider|bird FOLDER --out DIR`"),
    (["import", "spider", "x"], "expected"),
    (
        ["import", "spider", "nowhere", "--out", "y"],
        "no question in train_spider.json, train_others.json, dev.json, there",
    ),
    (["import", "spider", "x", "--out", "y", "--force"], "takes --out alone"),
]


@pytest.mark.parametrize(("words", "told"), WRONG)
def test_wrong_imports_are_told(words: list[str], told: str) -> None:
    done = CliRunner().invoke(app_of("data"), words)
    assert done.exit_code == 2 and told in " ".join(done.output.split())


def test_a_file_of_another_layout_is_told(tmp_path: Path) -> None:
    database(tmp_path / "database", "a")
    dump(tmp_path / "dev.json", [{"db_id": "a", "question": "?", "SQL": "SELECT 1"}])
    with pytest.raises(UserError, match="row 1: 'query' is missing; this is not the layout of spider"):
        read_public("spider", tmp_path)


@pytest.mark.parametrize("name", ["spider", "bird"])
@pytest.mark.parametrize(
    ("told", "text"),
    [
        ("[]", "no question in "),
        ("{}", "a list of objects is needed"),
        ("[[1]]", "a list of objects is needed"),
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('[{"db_id": "a", "question": null, "query": "", "SQL": ""}]', "row 1: question is None: Input should be a"),
        ('[{"db_id": "a", "question": "?", "query": 5, "SQL": 5}]', r"row 1: sql is 5: Input should be a valid string"),
        ('[{"db_id": "\\ud800", "question": "?", "query": "", "SQL": ""}]', "a lone surrogate"),
    ],
)
def test_a_file_that_is_none_is_told(tmp_path: Path, name: str, told: str, text: str) -> None:
    database(tmp_path / "database", "a")
    database(tmp_path / "dev_databases", "a")
    (tmp_path / "dev.json").write_text(told)
    with pytest.raises(UserError, match=text):
        read_public(name, tmp_path)


def test_an_import_without_a_training_question_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    folder, out = tmp_path / "spider", tmp_path / "out"
    database(folder / "database", "a")
    dump(folder / "train_spider.json", spider_rows("a", sql="SELECT nothing FROM item"))
    done = CliRunner().invoke(app_of("data"), ["import", "spider", str(folder), "--out", str(out)])
    assert done.exit_code == 2 and not out.exists()
    assert "no question is left to train on (question" in " ".join(done.output.split())


def test_a_database_that_no_folder_can_be_is_left_out(tmp_path: Path) -> None:
    database(tmp_path / "database", "a")
    dump(tmp_path / "dev.json", spider_rows("a", "a\0", "x" * 5_000, ""))
    read = read_public("spider", tmp_path, val_share=0.0, test_share=0.0)
    assert len(read.splits["train"]) == 3 and max(map(len, read.left_out)) < 300


def test_no_id_reaches_a_file_outside(tmp_path: Path) -> None:
    database(tmp_path / "database", "a")
    database(tmp_path, "outside")
    rows = spider_rows("a", "../outside", "../../outside/outside")
    dump(tmp_path / "dev.json", rows)
    read = read_public("spider", tmp_path, val_share=0.0, test_share=0.0)
    assert {question.db_id for question in read.splits["train"]} == {"a"}


# --- columns that nobody reads


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
def test_columns_that_nobody_reads_are_named(tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture) -> None:
    row = {"id": "a", "question": "Which?", "query": "SELECT 1", "hardness": "easy", "answer": "1"}
    path = tmp_path / f"rows{suffix}"
    if suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({name: [cell] for name, cell in row.items()}), path)
    elif suffix == ".csv":
        path.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n", encoding="utf-8-sig")
    else:
        path.write_text(json.dumps([row] if suffix == ".json" else row), encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        (question,) = load_questions(path)
    assert (question.question, question.answer) == ("Which?", "1")
    assert "nobody reads the column query, hardness" in caplog.text


def test_columns_that_are_read_are_not_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('qid,query,ground_truth,sql\na,"Which, then?",,SELECT 1\nb,Who?,x,\n', encoding="utf-8")
    first, second = load_questions(path)
    assert (first.question, first.answer, first.sql) == ("Which, then?", "", ["SELECT 1"])
    assert (second.id, second.answer, second.sql) == ("b", "x", [])
    assert not caplog.records


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id,question\na,b,c\n", "row 1 has not as many cells"),
        ("id,question\na\n", "row 1 has not as many cells"),
        ("id;question\na;b, c\n", "by ';'; save the file with commas"),
        ("\ufeffid\tquestion\na\tb\n", "save the file with commas"),
        ('id,question\na,"b\n', "not a CSV file"),
        ("id,question,answer,answer\na,b,1,2\n", "a name stands there twice; keep one of the two"),
        (f"id,question\na,{'b' * 200_000}\n", "field larger than .*, or as .jsonl"),
        ("id,questions\na,b\n", "rename it to `question`"),
        ("id,question\n", "the file has no rows"),
        ("", "the file has no rows"),
    ],
)
def test_a_broken_csv_is_told(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "rows.csv").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=told):
        load_questions(tmp_path / "rows.csv")
