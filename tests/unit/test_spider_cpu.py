"""spider_cpu: its questions name their database, whole databases are held out, and its teacher shows SQL that runs."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from recipes.spider_cpu.databases import DATABASES, HELD_OUT, write
from recipes.spider_cpu.tiny import TASK
from sql_agent.config import build_config, load_recipe
from sql_agent.data.dataset import load_questions
from sql_agent.environment.databases import Databases
from sql_agent.tiny_policy.tokenizer import train_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spider")
    write(folder)
    return folder


def opened(folder: Path) -> Databases:
    config = build_config(load_recipe("spider_cpu"), {"database": {"folder": str(folder / "databases")}})
    return Databases(config.database)


@pytest.mark.long
def test_databases_are_held_out_whole_and_every_reference_finds_something(folder: Path) -> None:
    ids = {}
    with opened(folder) as databases:
        assert databases.ids() == sorted(DATABASES)
        for name in ("train", "val", "test_entities", "test"):
            questions = load_questions(folder / f"{name}.jsonl")
            ids[name] = {question.db_id for question in questions}
            for question in questions:
                assert databases.of(question.db_id).query_sync(question.sql[0]).rows, question.question
    assert ids["test"] == {*HELD_OUT}
    assert ids["train"] == ids["val"] == ids["test_entities"] == {*DATABASES} - {*HELD_OUT}


@pytest.mark.long
def test_the_teacher_shows_queries_of_one_database_that_run(folder: Path) -> None:
    lesson = TASK.learn()
    teacher = lesson.teacher(random.Random(1), True)
    tokenizer = train_tokenizer(lesson.texts, lesson.frames)
    with opened(folder) as databases:
        for _ in range(40):
            messages = teacher.demonstrate()
            sql = messages[2]["tool_calls"][0]["function"]["arguments"]["sql"]
            assert any(databases.of(name).query_sync(sql).ok for name in databases.ids()), sql
            assert tokenizer.decode(tokenizer.encode(json.dumps(sql))) == json.dumps(sql)
