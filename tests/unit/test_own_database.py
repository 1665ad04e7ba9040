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
from pydantic import ValidationError
from rich.console import Console

from foundation.errors import UserError
from sql_agent.config import DatabaseConfig, RewardConfig
from sql_agent.records import Episode, Evidence, Question, SqlCall
from sql_agent.scoring.build import build_context
from sql_agent.scoring.check import check_scorers, needs_answer, offline_kinds, useless_queries
from sql_agent.scoring.registry import ScoringContext
from sql_agent.scoring.reward import score
from sql_agent.scoring.scorers import offline_kind
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
        database = context.database_of("")
        assert database
        calls = [SqlCall(sql=sql, result=await database.query(sql)) for sql in ran or ("SELECT 1",)]
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
    told = "of 3 rows: 2 by the number in the answer, 1 by the result of the query (sql_result)"
    assert offline_kinds([PAGES, PAGES_ZH, ABOUT], context) == told
    file, text = tmp_path / "rows.jsonl", StringIO()
    rows = [PAGES.model_copy(update={"id": str(n), "question": f"{PAGES.question} ({n})"}) for n in range(40)]
    file.write_text("".join(json.dumps(row.model_dump()) + "\n" for row in rows))
    flags = ["--dry-run", "--recipe", "smoke_cpu", "--data", str(file), "--val-data", str(file)]
    sets = [f"database.path={database}", 'database.tables=["books"]', 'logging.trackers=["console"]']
    config = resolve_config(train_flags(*flags, *(part for one in sets for part in ("--set", one))))
    assert dry_run(config, Console(file=text, soft_wrap=True, highlight=False)) == 0
    told = "of 40 rows: 40 by the number in the answer; it reads sentences in English and Chinese"
    assert f"the offline judge grades {told}" in text.getvalue()


def test_reference_queries_that_are_of_no_use_are_counted(context: ScoringContext) -> None:
    fails, finds_none = (
        PAGES.model_copy(update={"id": name, "answer": "1847", "sql": [f"SELECT {column} FROM books WHERE id = 9"]})
        for name, column in (("fails", "page"), ("finds-none", "pages"))
    )
    assert useless_queries([PAGES, PAGES_ZH], context) == ""
    told = useless_queries([PAGES, fails, finds_none], context)
    assert told.startswith("the reference SQL of 2 of 3 rows fails, finds nothing or too much; fails: no such column")


SHELF = Question(id="5", question="书架上有哪些书？", sql=["SELECT title FROM books"])
THICK = SHELF.model_copy(update={"id": "6", "question": "哪几本书最厚？", "answer_schema": "list"})
LENGTHS = SHELF.model_copy(update={"id": "7", "sql": ["SELECT title, pages FROM books"]})


def test_the_type_comes_from_the_columns_or_from_answer_schema(context: ScoringContext) -> None:
    kinds = [asyncio.run(offline_kind(one, context)) for one in (PAGES, SHELF, THICK, LENGTHS, ABOUT)]
    assert kinds == ["number", "set", "list", "set", "sql_result"]
    told, reverse = "书架上有Iron Tide和Pale Fire。", "书架上有Pale Fire和Iron Tide。"
    assert [earned(SHELF, context, answer) for answer in (told, reverse)] == [1, 1]
    assert [earned(THICK, context, answer) for answer in (told, reverse)] == [1, 0]
    quoted = SHELF.model_copy(update={"answer_schema": "text"})
    assert asyncio.run(offline_kind(quoted, context)) == "quote"


def test_values_of_one_row_are_told_of_it(context: ScoringContext) -> None:
    assert earned(LENGTHS, context, "Iron Tide有1847页，Pale Fire有315页。") == 1
    assert earned(LENGTHS, context, "Iron Tide有315页，Pale Fire有1847页。") == 0


def test_a_type_is_read_beside_evidence_and_with_a_mark(context: ScoringContext) -> None:
    cell = Evidence(source_table="books", row_id=1, field="author", quote="王立新")
    named = Question(
        id="8", question="作者是谁？", answer="王立新", evidence=[cell], answer_schema="boxed name", scorer="judge"
    )
    assert earned(named, context, r"作者是李娜。\boxed{这本书由王立新先生所写}") == 1
    assert earned(named, context, r"王立新。\boxed{李娜}") == 0


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"answer_schema": "number", "answer": "many", "sql": []}, "the answer 'many' is no number"),
        ({"answer_schema": "name", "answer": "x", "scorer": "exact"}, "read by the scorers judge and reference"),
    ],
)
def test_a_type_that_nothing_reads_is_an_error(context: ScoringContext, update: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_scorers([PAGES.model_copy(update=update)], context)


@pytest.mark.parametrize("schema", ["numbers", "number date", "answer boxed", "json"])
def test_an_unknown_schema_is_refused(schema: str) -> None:
    with pytest.raises(ValidationError, match="it may hold answer or boxed, and one of number"):
        Question(id="1", question="a", answer_schema=schema)
