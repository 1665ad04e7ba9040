"""What a policy, a tool, a client or a log wrote to break its reader: linear time, and no exception."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from foundation import redaction
from foundation.chat_request import NotAllowed, allowed
from foundation.files import read_object
from foundation.marks import Marks
from foundation.model_code import code_key
from foundation.redaction import MASK, keep_secret, redacted
from sql_agent.api.rewards import STEP, final_answer
from sql_agent.curation.chats import CODE, read_turns
from sql_agent.curation.formulas import LINK
from sql_agent.curation.leaks import query_form
from sql_agent.curation.logs import MARKED
from sql_agent.curation.numerals import in_digits
from sql_agent.curation.private import private
from sql_agent.environment.server_worker import plain
from sql_agent.environment.sql_tree import Forbidden, Rules
from sql_agent.offline_judge.halves import Halves, bare
from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.layout import captions
from sql_agent.offline_judge.normal import UNSEEN, normalise
from sql_agent.offline_judge.offers import without_sources
from sql_agent.offline_judge.tables import by_column
from sql_agent.scoring.math_check import candidate
from sql_agent.scoring.public_match import spider_query
from tests.linear import is_linear


def _table(text: str) -> str:
    return by_column(f"| a | b |\n{text}{'|' * len(text)}", [" a ", " b "], (), Halves(bare([" a c "])).whole)


@pytest.mark.parametrize(
    ("read", "piece"),
    [
        (Marks().hidden, "＜"),
        (Marks().shown, "＜"),
        (redacted, "\\"),
        (private, "a"),
        (private, "wechat"),
        (private, "password:"),
        (in_digits, "1"),
        (LINK.search, " "),
        (CODE.search, "\n"),
        (CODE.search, "; "),
        (MARKED.search, " "),
        (MARKED.search, "#"),
        (STEP.findall, "\n"),
        (candidate, r"\("),
        (candidate, r"\["),
        (final_answer, "["),
        (final_answer, "[1,"),
        (final_answer, "\n"),
        (final_answer, "亿"),
        (spider_query, "/*a"),
        (_table, "|\n"),
        *((Halves(bare([" a c "])).joined, one) for one in ("a:", "a|", "a:c\n", "a:\n")),
        *((partial(captions, n_things=2), one) for one in ("-", "a:\n", "|-", "a|\n|-", "。a")),
        (code_key, "a--b."),
        (code_key, "-"),
        *((partial(without_sources, tells=lambda _: False), one) for one in ("\n", "?\n", "source\n", "(source: ")),
        *((partial(UNSEEN.sub, ""), one) for one in ("<del>", "~~a ", "<span hidden ", "<p hidden>x", "[a]: #")),
    ],
)
def test_long_text_takes_linear_time(read: Callable[[str], Any], piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_secrets", {"sk-12345"})
    assert is_linear(lambda n: read("5 " + piece * (n // len(piece))), 3_000, 12_000)


@pytest.mark.parametrize("secret", ["sk-12345", "\\a\\b-12"])
def test_a_secret_is_found_behind_backslashes(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_secrets", set())
    keep_secret(secret)
    escaped = "".join(f"\\{char}" for char in secret), "".join(f"%{ord(char):02x}" for char in secret)
    for told in (secret, *escaped, f"\\\\{secret}", f"\\{escaped[1]}", json.dumps(json.dumps(secret))):
        assert MASK in redacted(f"a\\ {told}") and secret[-4:] not in redacted(f"a\\ {told}")


@pytest.mark.parametrize(
    "answer", [f"&#{'9' * 5_000};", "a\ud800", "五十一五十一", f"{'9' * 300}亿亿", f"{'9' * 290}/7亿亿"]
)
def test_any_answer_is_read(answer: str) -> None:
    assert grade(question="What is it?", reference="It is red.", answer=answer, kind="text")
    assert isinstance(final_answer(answer), str)


def test_sql_that_its_reader_fails_on_is_refused_or_compared_as_text() -> None:
    with pytest.raises(Forbidden):
        Rules("mysql", {"t": ["a"]}, home=("main",), max_rows=10).statement("DATE_ADD(a,")
    assert query_form("SELECT 1e999999999 * 1e999999999 FROM t") == "SELECT 1e999999999 * 1e999999999 FROM t"


@pytest.mark.parametrize(
    "condition", [" OR ".join(f"a = {n}" for n in range(400)), "=".join("a" * 400), f"a{'.a' * 5_000}"]
)
def test_a_long_condition_is_compared_as_text(condition: str) -> None:
    sql = f"SELECT a FROM t WHERE {condition}"
    assert query_form(f"{sql} ;") == sql


@pytest.mark.parametrize(("end", "text"), [(" LIMIT " + "9" * 5_000, "LIMIT 11"), ("[1]" * 6_000, "not authorized")])
def test_what_has_no_end_is_bounded_by_the_tree(end: str, text: str) -> None:
    rules, started_s = Rules("postgres", {"t": ["a"]}, home=("public",), max_rows=10), time.process_time()
    try:
        told = rules.statement(f"SELECT a FROM t{end}" if "LIMIT" in end else f"SELECT a{end} FROM t")
    except Forbidden as no:
        told = str(no)
    assert text in told and time.process_time() - started_s < 2


def test_a_number_of_any_length_is_a_cell() -> None:
    cells = [plain(Decimal(text)) for text in ("1e5000", "-1e5000", "12", f"1{'0' * 60}", "0.5")]
    assert json.loads(json.dumps(cells)) == [math.inf, -math.inf, 12, 10**60, 0.5]


def test_entities_are_characters() -> None:
    assert normalise(f"&#{'0' * 5_000}65;&#65;&#x41;") == "aaa"


@pytest.mark.parametrize("depth", range(100, 1_100, 50))
def test_deep_json_breaks_nothing(depth: int, tmp_path: Path) -> None:
    deep = '{"text":' * depth + "1" + "}" * depth
    assert Marks().arguments(deep) == deep
    file = tmp_path / "log.json"
    file.write_text(
        f'{{"messages": [{{"role": "user", "content": {deep}}}]}}\n{{"prompt": "What is it?", "response": ""}}\n'
    )
    assert len(read_turns(file)[0]) == 1
    file.write_text(deep)
    assert isinstance(read_object(file), dict)


def test_numbers_beyond_any_float_or_list() -> None:
    with pytest.raises(NotAllowed):
        allowed({"messages": [{"role": "user"}], "temperature": 10**400})
