"""Demonstrations of the tiny policy: their SQL runs, their answers fit the result, their flaws are the set ones."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise

import pytest
from transformers import PreTrainedTokenizerFast

from foundation.errors import UserError
from sql_agent.agent.sql_tool import QUERY, render_result
from sql_agent.data.build_database import TABLES
from sql_agent.data.bundled import DATA, ensure_bundled
from sql_agent.data.dataset import load_questions
from sql_agent.data.templates import load_templates
from sql_agent.records import QueryResult, Question
from sql_agent.tiny_policy.build import ensure_tiny_policy
from sql_agent.tiny_policy.corpus import MISSING_ANSWER, Corpus
from sql_agent.tiny_policy.demos import TOOLS, Demonstrator, Flaws, Message, render_records
from sql_agent.tiny_policy.train import IGNORED, assistant_labels
from tests.tiny_measure import parse_call

N = 300


def demonstrations(corpus: Corpus, flaws: Flaws | None = None, seed: int = 3) -> list[list[Message]]:
    demonstrator = Demonstrator(corpus, random.Random(seed), flaws or Flaws())
    return [demonstrator.demonstrate() for _ in range(N)]


def sql_of(chat: list[Message]) -> str:
    return chat[2]["tool_calls"][0]["function"]["arguments"]["sql"]


def cells_of(chat: list[Message]) -> list[str]:
    return [str(value) for record in json.loads(chat[3]["content"])["records"] for value in record.values()]


@pytest.fixture
def empty_database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as db:
        for spec in TABLES:
            db.execute(f"CREATE TABLE {spec.table} ({', '.join(spec.columns)})")
        yield db


def test_every_query_runs_and_has_the_columns_of_its_result(corpus: Corpus, empty_database: sqlite3.Connection) -> None:
    for chat in demonstrations(corpus):
        columns = [column[0] for column in empty_database.execute(sql_of(chat)).description]
        records = json.loads(chat[3]["content"])["records"]
        assert all(list(record) == columns for record in records)


def test_clean_answers_repeat_every_cell(corpus: Corpus) -> None:
    for chat in demonstrations(corpus):
        answer = chat[4]["content"]
        assert all(cell.rstrip("。") in answer for cell in cells_of(chat))
        assert (answer == MISSING_ANSWER) == (not cells_of(chat))


def test_the_flawed_demonstrator_leaves_facts_out_at_the_set_rate(corpus: Corpus) -> None:
    flaws = Flaws(wrong_column=0.0, first_fact_only=0.7)
    long = [chat for chat in demonstrations(corpus, flaws) if len(cells_of(chat)) == 1 and "；" in cells_of(chat)[0]]
    cut = [chat for chat in long if cells_of(chat)[0].rstrip("。") not in chat[4]["content"]]
    assert len(long) > 50
    assert 0.55 < len(cut) / len(long) < 0.85


def test_the_flawed_demonstrator_reads_the_general_column(corpus: Corpus) -> None:
    always, never = (demonstrations(corpus, Flaws(wrong_column=rate, first_fact_only=0.0)) for rate in (1.0, 0.0))
    # The draws are those of both: questions are the same, columns differ where not the general one is asked for.
    assert [chat[1] for chat in always] == [chat[1] for chat in never]
    assert sum(sql_of(one) != sql_of(other) for one, other in zip(always, never, strict=True)) > N / 2
    single = [re.match(r"SELECT (\w+) FROM \w+ WHERE \w+ = ", sql_of(chat)) for chat in always]
    assert {match[1] for match in single if match} == {"description", "overview"}
    multi = [re.match(r"SELECT (\w+, .*) FROM \w+ WHERE \w+ = ", sql_of(chat)) for chat in always]
    assert all(len(set(columns)) == len(columns) for match in multi if match for columns in [match[1].split(", ")])


def test_results_and_tool_look_as_at_run_time() -> None:
    result = QueryResult(columns=["med_name", "form"], rows=[["甲", "片剂；胶囊剂"], ["乙", None]])
    records = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
    assert render_records(records) == render_result(result, max_chars=1000)
    assert [tool["function"]["name"] for tool in TOOLS] == [QUERY]


def test_loss_counts_what_the_assistant_says_and_nothing_else(
    corpus: Corpus, tokenizer: PreTrainedTokenizerFast
) -> None:
    for chat in demonstrations(corpus)[:20]:
        ids = tokenizer.encode(
            str(tokenizer.apply_chat_template(chat, tools=list(TOOLS), tokenize=False)), add_special_tokens=False
        )
        counted = tokenizer.decode([label for label in assistant_labels(ids, tokenizer) if label != IGNORED])
        call, answer, rest = str(counted).split("<|im_end|>")
        assert (parse_call(call), answer, rest) == (sql_of(chat), chat[4]["content"], "")


def test_calls_are_read_as_the_hermes_parser_reads_them() -> None:
    call = '{"name": "query_database_by_sql", "arguments": {"sql": "SELECT 1"}}'
    assert parse_call(f"<tool_call>\n{call}\n</tool_call>") == "SELECT 1"
    assert parse_call(f"<tool_call>{call}") == "SELECT 1"
    assert parse_call(call) is None
    assert parse_call("<tool_call>{</tool_call>") is None
    assert parse_call('<tool_call>{"name": "other", "arguments": {"sql": "SELECT 1"}}</tool_call>') is None


def test_a_folder_with_other_content_is_never_replaced(tmp_path) -> None:
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    for force in (False, True):
        with pytest.raises(UserError, match="not empty"):
            ensure_tiny_policy(1, out=tmp_path, force=force)
    assert (tmp_path / "thesis.txt").read_text(encoding="utf-8") == "mine"


def test_no_held_out_word_is_ever_asked_with(corpus: Corpus) -> None:
    templates = load_templates()
    words = {*corpus.words.all(), *corpus.everyday}
    for table in templates.tables.values():
        for labels in table.fields.values():
            assert words.isdisjoint([*labels.val, *labels.test])
    held_out = [p for phrasings in templates.phrasings.values() for p in phrasings if p.split != "train"]
    pieces = {piece for p in held_out for piece in re.split(r"{\w+}|[，。？：、]", p.text) if len(piece) >= 5}
    assert len(pieces) > 20
    assert not [(piece, word) for piece in pieces for word in words if piece in word]


def test_made_up_names_resemble_those_of_training_alone_and_are_nobodys(corpus: Corpus) -> None:
    ensure_bundled("data/train.parquet")
    questions = {split: load_questions(DATA / f"{split}.parquet") for split in ("train", "val", "test")}
    asked = {split: {name for question in rows for name in names_of(question)} for split, rows in questions.items()}
    assert set(corpus.names) == asked["train"]
    assert corpus.real >= asked["train"] | asked["val"] | asked["test"]
    demonstrator = Demonstrator(corpus, random.Random(1))
    made = [demonstrator.name() for _ in range(3000)]
    assert corpus.real.isdisjoint(made)
    pairs = {pair for name in corpus.names for pair in pairwise(name)}
    alike = sum(all(pair in pairs for pair in pairwise(name)) for name in made if len(name) > 2)
    assert alike > 50


def names_of(question: Question) -> list[str]:
    named = [value for key, value in question.meta["entity"].items() if "_name" in key]
    return [name for value in named for name in ([value] if isinstance(value, str) else value)]


def test_every_field_has_more_names_and_every_wording_its_slots(corpus: Corpus) -> None:
    for table in corpus.tables:
        assert corpus.words.labels[table.table].keys() == table.labels.keys()
    demonstrator = Demonstrator(corpus, random.Random(1))
    assert not [q for q in (demonstrator.query()[0]["content"] for _ in range(500)) if "{" in q or "}" in q]
