"""The data maker of train_sft.py: the warm start's exercises token for token, and right answers to questions."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from foundation.files import read_lines
from sql_agent.config import DatabaseConfig, JudgeConfig, RewardConfig, build_config, data_path, database_path
from sql_agent.data.dataset import load_questions
from sql_agent.environment.database import Database
from sql_agent.evaluation.trials import draw
from sql_agent.records import Episode, SqlCall
from sql_agent.scoring.build import build_context
from sql_agent.scoring.reward import score
from sql_agent.tiny_policy.demonstrations import answered, app, exercises
from sql_agent.tiny_policy.task import load_task
from sql_agent.tiny_policy.train import assistant_labels
from sql_agent.tuning.encoding import Encoded, Encoder
from sql_agent.tuning.sources import read_source


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("shown") / "shown.jsonl"
    assert CliRunner().invoke(app, ["--seed", "3", "--rows", "200", "--out", str(file)]).exit_code == 0
    return file


def test_the_seed_decides_what_is_shown(shown: Path) -> None:
    lesson = load_task("").learn()
    rows = read_lines(shown)
    assert [row["messages"] for row in rows] == list(itertools.islice(exercises(lesson, seed=3), 200))
    assert rows[0]["messages"] != next(exercises(lesson, seed=4))
    whole = [row for row in rows if row["messages"][0]["role"] == "system"]
    assert 40 < len(whole) < 120 and all(row["tools"] == lesson.tools for row in whole)
    assert not any(row["tools"] for row in rows if row not in whole)


def test_what_is_supervised_is_what_the_warm_start_supervises(shown: Path, tokenizer: Any) -> None:
    config = build_config({"sft": {"dataset": str(shown)}})
    source, encoder = read_source(config.sft, config.data, config), Encoder(tokenizer)
    assert not source.left_out
    for row, chat in zip(read_lines(shown), source.chats, strict=True):
        text = tokenizer.apply_chat_template(row["messages"], tools=row["tools"] or None, tokenize=False)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        (found,) = [Encoded.of(one) for one in encoder.rows(chat)]
        labels = assistant_labels(ids, tokenizer)
        supervised = [n for n, label in enumerate(labels) if label >= 0]
        # The warm start's rows end with the template's line break, which nobody says.
        assert found.ids == ids[: len(found.ids)] and len(ids) - len(found.ids) <= 1
        assert [n for n, on in enumerate(found.mask) if on] == supervised


def test_the_answers_to_questions_are_right() -> None:
    """By the project's own scorers: the query ran, and the answer holds all that the reference has."""
    questions = draw(load_questions(data_path("data/train.parquet")), 60)
    config = DatabaseConfig()  # pyright: ignore[reportCallIssue]
    scoring = build_context(RewardConfig(judge=JudgeConfig(kind="reference")))  # pyright: ignore[reportCallIssue]

    async def rewards() -> list[float]:
        with Database(config, database_path(config)) as database:
            chats, left = await answered(questions, database)
            assert not left
            found = []
            for question, chat in zip(questions, chats, strict=True):
                sql = chat[2]["tool_calls"][0]["function"]["arguments"]["sql"]
                assert "id =" not in sql
                calls = [SqlCall(sql=sql, result=await database.query(sql))]
                episode = Episode(question=question, final_answer=chat[-1]["content"], sql_calls=calls, n_turns=2)
                found.append((await score(episode, scoring)).total or 0.0)
            return found

    found = asyncio.run(rewards())
    assert min(found) > 1.0


def test_what_cannot_be_shown_is_refused(shown: Path, tmp_path: Path) -> None:
    again = CliRunner().invoke(app, ["--out", str(shown)])
    assert again.exit_code == 2 and "name a new file" in again.output
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"id": "1", "question": "1+1?", "answer": "2"}) + "\n")
    foreign = CliRunner().invoke(app, ["--questions", str(other), "--out", str(tmp_path / "new.jsonl")])
    assert foreign.exit_code == 2 and "has no bundled question" in foreign.output
    assert not (tmp_path / "new.jsonl").exists()
