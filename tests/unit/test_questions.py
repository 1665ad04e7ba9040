"""The generated questions: deterministic, true to the database, and without a leak between the splits."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from foundation.errors import UserError
from sql_agent.data.build import SOURCE
from sql_agent.data.build_database import build_database
from sql_agent.data.questions import WANTED, make_questions, write_raw
from sql_agent.data.templates import SPLITS, TEMPLATES, Split, load_templates
from sql_agent.records import Question

TASKS = {"drug_field", "disease_field", "compare_drugs", "compare_diseases", "drug_search_by_kw"}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("db") / "medical.db"
    build_database(SOURCE, path)
    return path


@pytest.fixture(scope="module")
def questions(database: Path) -> list[Question]:
    return make_questions(database, load_templates())


def of_split(questions: list[Question], split: Split) -> list[Question]:
    return [question for question in questions if question.meta["split"] == split]


@pytest.mark.long
def test_same_seed_same_questions(database: Path, questions: list[Question]) -> None:
    assert make_questions(database, load_templates()) == questions
    assert make_questions(database, load_templates(), seed=5) != questions


def test_other_counts_leave_the_other_intents_alone(database: Path, questions: list[Question]) -> None:
    fewer = make_questions(database, load_templates(), wanted={**WANTED, "test": {**WANTED["test"], "single": 3}})
    compares = [[q.question for q in made if q.meta["intent"] == "search"] for made in (questions, fewer)]
    assert compares[0] == compares[1]


def test_texts_and_ids_are_unique(questions: list[Question]) -> None:
    assert len({question.question for question in questions}) == len(questions)
    assert len({question.id for question in questions}) == len(questions)
    assert {question.task_type for question in questions} == TASKS


def test_training_never_shows_a_held_out_label(questions: list[Question]) -> None:
    held_out = [
        label for table in load_templates().tables.values() for f in table.fields.values() for label in f.val + f.test
    ]
    train = of_split(questions, "train")
    assert not [q.question for q in train for label in q.meta["labels"] if label in held_out]
    assert not any(q.meta["unseen_label"] for q in train)
    assert 0.1 < sum(q.meta["unseen_label"] for q in of_split(questions, "test")) / 500 < 0.6


def test_answers_hold_what_the_reference_sql_returns(database: Path, questions: list[Question]) -> None:
    with closing(sqlite3.connect(database)) as db:
        for question in questions:
            cells = [cell for sql in question.sql for row in db.execute(sql) for cell in row]
            shown = cells[1::2] if question.meta["intent"] == "search" else cells
            assert shown
            assert all(str(cell).rstrip("。") in question.answer for cell in shown), question


def test_evidence_quotes_the_database(database: Path, questions: list[Question]) -> None:
    with closing(sqlite3.connect(database)) as db:
        for piece in (piece for question in questions for piece in question.evidence):
            query = f"SELECT {piece.field} FROM {piece.source_table} WHERE id = ?"
            (cell,) = db.execute(query, (piece.row_id,)).fetchone()
            assert piece.quote in cell


def test_field_questions_name_entity_and_select_by_id(questions: list[Question]) -> None:
    for question in questions:
        entity = question.meta["entity"]
        names = [value for key, value in entity.items() if "_name" in key and isinstance(value, str)]
        assert all(name in question.question and name in question.answer for name in names)
        assert all(label in question.question for label in question.meta["labels"])
        if question.task_type != "drug_search_by_kw":
            assert names
            assert all(re.fullmatch(r"SELECT [\w, ]+ FROM \w+ WHERE id = \d+", sql) for sql in question.sql)


def test_comparisons_differ(questions: list[Question]) -> None:
    for question in questions:
        if question.meta["intent"] == "compare":
            first, second = (piece.quote for piece in question.evidence)
            assert first != second


def test_lookups_match_items_and_stay_small(database: Path, questions: list[Question]) -> None:
    lookups = [question for question in questions if question.task_type == "drug_search_by_kw"]
    assert {question.meta["intent"] for question in lookups} == {"search", "count"}
    with closing(sqlite3.connect(database)) as db:
        for question in lookups:
            keyword, field = question.meta["entity"]["keyword"], question.meta["fields"][0]
            cells = db.execute(f"SELECT id, {field} FROM drugs_info").fetchall()
            having = [row for row, cell in cells if keyword in cell.split("；")]
            assert having == question.meta["entity"]["drug_ids"]
            assert 1 <= len(having) <= (5 if question.meta["intent"] == "search" else 12)
            assert question.meta["intent"] == "search" or question.answer.endswith(f"共{len(having)}种。")


def test_no_count_is_right_for_most_questions_of_a_field(database: Path) -> None:
    """A constant answer to all counts of a field must not pay."""
    counts: dict[str, Counter[str]] = {}
    for question in make_questions(database, load_templates(), wanted={"train": WANTED["train"]}):
        if question.meta["intent"] == "count":
            counts.setdefault(question.meta["fields"][0], Counter())[question.answer.rpartition("共")[2]] += 1
    assert len(counts) == 5 and sum(map(Counter.total, counts.values())) == 100
    assert all(max(found.values()) <= 0.3 * found.total() for found in counts.values())
    assert sum(max(found.values()) for found in counts.values()) <= 25


def test_raw_file_has_the_documented_keys(tmp_path: Path, questions: list[Question]) -> None:
    write_raw(questions[:3], tmp_path / "qa.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "qa.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [" ".join(row) for row in rows] == ["qid task_type question sql evidence meta ground_truth"] * 3
    assert rows[0]["evidence"][0].keys() == {"source_table", "row_id", "field", "quote"}
    assert "created_at" in rows[0]["meta"]


def test_every_split_has_every_intent(questions: list[Question]) -> None:
    for split in SPLITS:
        assert {question.meta["intent"] for question in of_split(questions, split)} == set(WANTED[split])


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("tables", "drugs_info", "fields", "dosage", "test"), ["适应症"], "label '适应症' of"),
        (("tables", "drugs_info", "fields", "dosage", "train"), ["作用"], "or a part of it"),
        (("phrasings", "single", 0, "text"), "{name}怎么样？", "single-train-1: has placeholders \\['name'\\]"),
        (("phrasings", "single", 0, "id"), "single-test-1", "duplicate"),
        (("phrasings", "single", 0, "split"), "dev", "'train', 'val' or 'test'"),
    ],
)
def test_faulty_templates_are_named(tmp_path: Path, path: tuple[Any, ...], value: Any, message: str) -> None:
    tree = yaml.safe_load(TEMPLATES.read_text(encoding="utf-8"))
    node = tree
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(tree, allow_unicode=True), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        load_templates(tmp_path / "t.yaml")
