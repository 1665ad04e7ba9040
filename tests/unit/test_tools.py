"""The tool as the model and openai-agents see it: its JSON, its bad arguments, its faults."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from agents.tool_context import ToolContext
from hypothesis import given
from hypothesis import strategies as st
from mcp.types import CallToolResult
from pydantic import BaseModel

from sql_agent.agent.episode import function_tool_of
from sql_agent.agent.mcp_tools import text_of
from sql_agent.agent.sql_tool import render_result, sql_tool
from sql_agent.agent.tool import EpisodeContext, Tool, as_text, is_repeated_call
from sql_agent.config import AgentConfig
from sql_agent.environment.database import Database
from sql_agent.errors import DatabaseFault
from sql_agent.records import Episode, QueryResult, Question
from tests.sql_db import N_DRUGS, make_database, open_database

TOOL = "query_database_by_sql"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_database(make_database(tmp_path)) as opened:
        yield opened


@pytest.fixture
def tool(database: Database) -> Tool:
    return sql_tool(database, description="SELECT", max_chars=1000)


@pytest.fixture
def context() -> EpisodeContext:
    return EpisodeContext(n_turns=2)


def invoke(tool: Tool, context: EpisodeContext, arguments: str) -> dict[str, Any]:
    """Call the tool as openai-agents does, and parse what the model would see."""
    call = ToolContext(context=context, tool_name=TOOL, tool_call_id="call-1", tool_arguments=arguments)
    return json.loads(asyncio.run(function_tool_of(tool).on_invoke_tool(call, arguments)))  # type: ignore[arg-type]


# --- what the model sees of a result


def test_a_result_has_the_documented_form() -> None:
    result = QueryResult(columns=["id", "med_name"], rows=[[1, "阿司匹林"], [2, None]])
    expected = (
        '{"status": "success", "records": [{"id": 1, "med_name": "阿司匹林"}, {"id": 2, "med_name": null}], "count": 2}'
    )
    assert render_result(result, max_chars=1000) == expected


def test_numbers_that_json_lacks_are_null() -> None:
    class Reading(BaseModel):
        bar: float

    text = as_text({"药": [float("nan"), -float("inf"), 1.5], "at": Reading(bar=float("inf"))})
    assert text == '{"药": [null, null, 1.5], "at": {"bar": null}}'
    of_server = CallToolResult(content=[], structured_content={"bar": float("nan")})
    assert text_of(of_server) == '{"bar": null}'


def test_models_and_dataclasses_are_told_by_their_fields() -> None:
    class Shelf(BaseModel):
        name: str
        since: date

    @dataclass
    class Found:
        shelves: list[Shelf]
        kind: type = int

    text = as_text([Found([Shelf(name="药", since=date(2024, 5, 1))])])
    assert text == '[{"shelves": [{"name": "药", "since": "2024-05-01"}], "kind": "<class \'int\'>"}]'


def test_an_empty_result_and_an_error() -> None:
    assert (
        render_result(QueryResult(columns=["id"]), max_chars=100) == '{"status": "success", "records": [], "count": 0}'
    )
    error = json.loads(render_result(QueryResult(error="no such column: x"), max_chars=1000))
    assert error == {"status": "error", "records": [], "count": 0, "error": "no such column: x"}


def test_a_long_error_is_cut() -> None:
    text = render_result(QueryResult(error='"\n' * 5000), max_chars=200)
    assert len(text) <= 200 and json.loads(text)["error"].endswith("…")


def test_a_long_result_shows_whole_records_first() -> None:
    rows = [[n, "发热" * 100] for n in range(50)]
    shown = json.loads(render_result(QueryResult(columns=["id", "text"], rows=rows), max_chars=1000))
    assert [record["id"] for record in shown["records"]] == [0, 1, 2, 3]
    assert all(record["text"] == "发热" * 100 for record in shown["records"])
    assert (shown["count"], shown["note"]) == (50, "结果过长，只显示前 4 条，共 50 条")


def test_one_long_record_loses_its_longest_cells() -> None:
    row = ["阿司匹林", "长" * 5000, "中" * 300, 7]
    text = render_result(QueryResult(columns=["a", "b", "c", "d"], rows=[row, row]), max_chars=1000)
    shown = json.loads(text)
    record = shown["records"][0]
    assert (record["a"], record["c"], record["d"]) == ("阿司匹林", "中" * 300, 7)
    assert record["b"].endswith("…") and 990 <= len(text) <= 1000
    assert shown["count"] == 2 and "只显示前 1 条，共 2 条" in shown["note"] and "删节" in shown["note"]


def test_a_row_limited_result_says_at_least() -> None:
    result = QueryResult(columns=["id"], rows=[[n] for n in range(5)], truncated=True)
    shown = json.loads(render_result(result, max_chars=1000))
    assert shown["count"] == 5 and "至少 5 条" in shown["note"]
    assert "至少 5 条" in json.loads(render_result(result, max_chars=119))["note"]


def test_column_names_that_alone_are_too_long_leave_a_note() -> None:
    result = QueryResult(columns=[f"column_{n}" for n in range(90)], rows=[[0] * 90])
    shown = json.loads(render_result(result, max_chars=100))
    assert (shown["records"], shown["count"]) == ([], 1) and "减少" in shown["note"]


HAN = re.compile("[\u4e00-\u9fff]")


@pytest.mark.parametrize("max_chars", [100, 119, 200, 1000])
@pytest.mark.parametrize(
    "description", [AgentConfig().tool_description, "Run one SELECT; returns JSON."], ids=["Chinese", "English"]
)
def test_notes_and_arguments_are_in_the_language_of_the_description(
    database: Database, description: str, max_chars: int
) -> None:
    tool = sql_tool(database, description=description, max_chars=max_chars)
    is_chinese = bool(HAN.search(description))
    assert bool(HAN.search(json.dumps(tool.parameters, ensure_ascii=False))) == is_chinese
    noted = "1 AS a", f"'{'x' * 300}' AS a", f"1{', 1' * 200}"  # many rows, long cells, many columns
    for columns in noted:
        sql = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 99) SELECT {columns} FROM n"
        text = asyncio.run(tool.invoke(EpisodeContext(), json.dumps({"sql": sql})))
        shown = json.loads(text)
        assert (shown["status"], len(text) <= max_chars) == ("success", True), text
        assert bool(HAN.search(shown["note"])) == is_chinese


def test_english_notes_say_what_is_left_out() -> None:
    def note(rows: list[list[Any]], *, max_chars: int, truncated: bool = False) -> str:
        result = QueryResult(columns=["a"], rows=rows, truncated=truncated)
        return json.loads(render_result(result, max_chars=max_chars, language="en"))["note"]

    assert note([[1]] * 3, max_chars=1000, truncated=True).startswith(
        "too many rows: at least 3 in all, only the first 3"
    )
    assert note([["x" * 100]] * 3, max_chars=300) == "too long: only the first 1 are here, of 3 in all"
    assert note([["x" * 900]] * 3, max_chars=300).endswith("of 3 in all, and what ends in “…” is cut")


CELLS = st.one_of(st.none(), st.integers(), st.floats(), st.booleans(), st.text(max_size=300), st.binary(max_size=50))


@given(
    columns=st.lists(st.sampled_from(["id", "id_2", "名称", 'a"b', "x" * 30]), min_size=1, unique=True),
    data=st.data(),
    max_chars=st.integers(100, 1500),
    truncated=st.booleans(),
    language=st.sampled_from(["zh", "en"]),
)
def test_any_result_is_valid_json_within_the_limit(
    columns: list[str], data: st.DataObject, max_chars: int, truncated: bool, language: Any
) -> None:
    n = len(columns)
    rows = data.draw(st.lists(st.lists(CELLS, min_size=n, max_size=n), max_size=8))
    result = QueryResult.model_construct(columns=columns, rows=rows, truncated=truncated, elapsed_s=0.0, error=None)
    text = render_result(result, max_chars=max_chars, language=language)
    shown = json.loads(text, parse_constant=pytest.fail)
    assert len(text) <= max_chars
    assert shown["status"] == "success" and shown["count"] == len(rows)
    assert all(len(record) == n for record in shown["records"])
    assert len(shown["records"]) == len(rows) or "note" in shown


def test_a_result_whose_first_row_is_too_long_to_read_is_told_in_any_room() -> None:
    result = QueryResult.model_construct(columns=["id"], rows=[], truncated=True, elapsed_s=0.0, error=None)
    for max_chars in range(100, 300):
        text = render_result(result, max_chars=max_chars, language="en")
        assert len(text) <= max_chars and json.loads(text)["count"] == 0


@given(error=st.text(max_size=2000), max_chars=st.integers(100, 1500))
def test_any_error_is_valid_json_within_the_limit(error: str, max_chars: int) -> None:
    text = render_result(QueryResult(error=error), max_chars=max_chars)
    assert len(text) <= max_chars and json.loads(text)["status"] == "error"


# --- calls


def test_a_call_is_recorded_with_its_turn(tool: Tool, context: EpisodeContext) -> None:
    shown = invoke(tool, context, '{"sql": "SELECT count(*) AS n FROM drugs_info;"}')
    assert shown == {"status": "success", "records": [{"n": N_DRUGS}], "count": 1}
    (call,) = context.sql_calls
    assert (call.sql, call.turn, call.result.rows) == ("SELECT count(*) AS n FROM drugs_info;", 2, [[N_DRUGS]])


def test_many_equal_columns_cost_next_to_nothing(database: Database) -> None:
    result = database.query_sync(f"SELECT med_name{', med_name' * 199} FROM drugs_info")
    assert len(result.rows) == 50
    started_s = time.thread_time()
    render_result(result, max_chars=1000)
    assert time.thread_time() - started_s < 0.05


def test_a_failing_query_is_a_call_and_an_error_text(tool: Tool, context: EpisodeContext) -> None:
    shown = invoke(tool, context, '{"sql": "SELECT nme FROM drugs_info"}')
    assert shown["status"] == "error" and "no such column: nme" in shown["error"]
    assert len(context.sql_calls) == 1 and not context.sql_calls[0].result.ok and context.n_bad_tool_calls == 0


BAD_ARGUMENTS = [
    "",
    "SELECT 1",
    "{",
    '{"sql": "SELECT 1"',
    "null",
    "[]",
    '"SELECT 1"',
    "{}",
    '{"query": "SELECT 1"}',
    '{"sql": null}',
    '{"sql": 5}',
    '{"sql": ["SELECT 1"]}',
    '{"sql": {"sql": "SELECT 1"}}',
    '{"sql": ""}',
    '{"sql": "  "}',
    "[" * 100_000,
    '{"a":' * 50_000,
    "9" * 10_000,
]


@pytest.mark.parametrize("arguments", BAD_ARGUMENTS, ids=lambda text: repr(text)[:30])
def test_bad_arguments_are_an_error_text_and_counted(tool: Tool, context: EpisodeContext, arguments: str) -> None:
    shown = invoke(tool, context, arguments)
    assert shown["status"] == "error" and shown["error"]
    assert (context.n_bad_tool_calls, context.sql_calls) == (1, [])


@pytest.mark.parametrize("sql", ["SELECT '\\ud800'", "SELECT '\\u0000'", "SELECT '" + "x" * 5_000_000 + "'"], ids=len)
def test_odd_sql_is_an_error_that_a_record_can_carry(tool: Tool, context: EpisodeContext, sql: str) -> None:
    assert invoke(tool, context, f'{{"sql": "{sql}"}}')["status"] == "error"
    episode = Episode(question=Question(id="1", question="?"), sql_calls=context.sql_calls)
    text = episode.model_dump_json()
    assert Episode.model_validate_json(text) == episode and len(text) < 100_000
    text.encode()


def test_a_database_fault_is_kept_and_raised(tool: Tool, database: Database, context: EpisodeContext) -> None:
    Path(database.path).unlink()
    with pytest.raises(DatabaseFault) as caught:
        asyncio.run(tool.invoke(context, '{"sql": "SELECT 1"}'))
    assert context.fault is caught.value and context.sql_calls == []


def test_parallel_calls_do_not_mix(tool: Tool, context: EpisodeContext) -> None:
    async def run() -> list[str]:
        asked = (json.dumps({"sql": f"SELECT {n} AS n"}) for n in range(20))
        return await asyncio.gather(*(tool.invoke(context, arguments) for arguments in asked))

    assert [json.loads(text)["records"][0]["n"] for text in asyncio.run(run())] == list(range(20))
    assert sorted(call.result.rows[0][0] for call in context.sql_calls) == list(range(20))


def test_the_tool_has_a_strict_schema(tool: Tool) -> None:
    shown = function_tool_of(tool)
    assert shown.strict_json_schema and shown.params_json_schema["required"] == ["sql"]
    assert shown.params_json_schema["additionalProperties"] is False
    assert "SELECT" in AgentConfig().tool_description


def test_a_cell_is_shown_as_it_is(tool: Tool, context: EpisodeContext) -> None:
    shown = asyncio.run(tool.invoke(context, '{"sql": "SELECT \'<|im_end|><tool_call>\' AS x"}'))
    assert "<|im_end|><tool_call>" in shown and context.sql_calls[0].result.rows == [["<|im_end|><tool_call>"]]


@pytest.mark.parametrize(
    ("asked", "repeated"),
    [
        (["SELECT 1"] * 3, True),
        (["SELECT 1", "SELECT  1 ;", "\nSELECT 1;"], True),
        (["SELECT 1"] * 2, False),
        (["SELECT 1", "SELECT 2", "SELECT 1"], False),
        (["SELECT 2", "SELECT 1", "SELECT 1", "SELECT 1"], True),
        (["SELECT 1", "SELECT 1", "SELECT 1", "SELECT 2"], False),
        ([], False),
    ],
)
def test_the_same_query_again_and_again_is_noticed(
    tool: Tool, context: EpisodeContext, asked: list[str], repeated: bool
) -> None:
    for sql in asked:
        asyncio.run(tool.invoke(context, json.dumps({"sql": sql})))
    assert is_repeated_call(context) is repeated
