"""What rows on a database of one's own are graded by, without an LLM judge: values, query results, quotes."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from sql_agent.config import DatabaseConfig, RewardConfig
from sql_agent.records import Episode, Evidence, Question, SqlCall
from sql_agent.scoring.build import build_context
from sql_agent.scoring.check import needs_answer, offline_kinds
from sql_agent.scoring.registry import ScoringContext
from sql_agent.scoring.reward import score
from sql_agent.training.dry_run import dry_run
from sql_agent.training.options import resolve_config
from tests.typed import train_flags

pytestmark = pytest.mark.usefixtures("offline_judge")

PAGES = Question(id="1", question="How many pages does Iron Tide have?", sql=["SELECT pages FROM books WHERE id = 1"])
PAGES_ZH = PAGES.model_copy(update={"id": "2", "question": "《Iron Tide》一共有多少页？"})
ABOUT = Question(id="3", question="What are the books about?", sql=["SELECT title, plot FROM books"])
QUOTE = Question(
    id="4",
    question="What is Iron Tide about?",
    evidence=[
        Evidence(
            source_table="books", row_id=1, field="plot", quote="a long voyage north that none of the crew survives"
        )
    ],
)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "books.db")) as connection, connection:
        connection.execute("CREATE TABLE books (id INTEGER PRIMARY KEY, title TEXT, pages INTEGER, plot TEXT)")
        rows = [(1, "Iron Tide", 1847, "A voyage. " * 20), (2, "Pale Fire", 315, "A poem and what is said of it. " * 5)]
        connection.executemany("INSERT INTO books VALUES (?, ?, ?, ?)", rows)
    return tmp_path / "books.db"


@pytest.fixture
def context(database: Path) -> Iterator[ScoringContext]:
    found = build_context(RewardConfig(sql_bonus=0), DatabaseConfig(path=str(database), tables=["books"]))
    yield found
    found.close()


def earned(question: Question, context: ScoringContext, answer: str, *ran: str) -> float | None:
    async def run() -> float | None:
        assert context.database
        calls = [SqlCall(sql=sql, result=await context.database.query(sql)) for sql in ran]
        return (await score(Episode(question=question, final_answer=answer, sql_calls=calls), context)).total

    return asyncio.run(run())


def test_a_value_is_read_in_the_answer_in_both_languages(context: ScoringContext) -> None:
    for question, right, wrong in (
        (PAGES, "Iron Tide has 1,847 pages.", "Iron Tide has 1,874 pages."),
        (PAGES_ZH, "《Iron Tide》一共有1847页。", "《Iron Tide》一共有1847或1874页。"),
    ):
        assert earned(question, context, right) == 1 and earned(question, context, wrong) == 0
        assert not needs_answer(question, context)


def test_what_is_no_value_is_graded_by_the_result_of_the_query(context: ScoringContext) -> None:
    assert earned(ABOUT, context, "see above", "SELECT plot, title FROM books ORDER BY id") == 1
    assert earned(ABOUT, context, "see above", "SELECT title FROM books") == 0


def test_rows_with_evidence_and_the_bundled_database_are_quoted(context: ScoringContext) -> None:
    assert earned(QUOTE, context, "a long voyage north that none of the crew survives") == 1
    assert offline_kinds([QUOTE], context) == "of 1 rows: 1 by quotes of the record"
    with closing(build_context(RewardConfig(), DatabaseConfig())) as bundled:
        assert not bundled.own_database and needs_answer(ABOUT, bundled)


def test_the_plan_tells_the_choice(context: ScoringContext, database: Path, tmp_path: Path) -> None:
    told = "of 3 rows: 2 by the value in the answer, 1 by the result of the query (sql_result)"
    assert offline_kinds([PAGES, PAGES_ZH, ABOUT], context) == told
    file, text = tmp_path / "rows.jsonl", StringIO()
    rows = [PAGES.model_copy(update={"id": str(n), "question": f"{PAGES.question} ({n})"}) for n in range(40)]
    file.write_text("".join(json.dumps(row.model_dump()) + "\n" for row in rows))
    flags = ["--dry-run", "--recipe", "smoke_cpu", "--data", str(file), "--val-data", str(file)]
    sets = [f"database.path={database}", 'database.tables=["books"]', 'logging.trackers=["console"]']
    config = resolve_config(train_flags(*flags, *(part for one in sets for part in ("--set", one))))
    assert dry_run(config, Console(file=text, soft_wrap=True, highlight=False)) == 0
    assert "the offline judge grades of 40 rows: 40 by the value in the answer" in text.getvalue()
