"""The tool `query_database_by_sql`, and the JSON that the model sees of a result.

Guarantees: whatever the model sends, it gets valid JSON of at most `max_chars` characters back; only a DatabaseFault
ends the run (openai-agents wraps it, the original stays in `EpisodeContext.fault`). What a query may do is not decided
here but in `database.py`.
"""

from __future__ import annotations

import bisect
import json
import re
import time
from collections.abc import Callable
from typing import Any, Literal

from foundation.files import writable
from sql_agent.agent.tool import BadArguments, EpisodeContext, Tool, parse_object
from sql_agent.config import TITLES
from sql_agent.environment.database import Database
from sql_agent.environment.sql_worker import MAX_SQL_CHARS, plain_value
from sql_agent.errors import DatabaseFault
from sql_agent.records import QueryResult, SqlCall

Record = dict[str, Any]
UNLIMITED = 1 << 60
QUERY = "query_database_by_sql"
HAN = re.compile("[\u4e00-\u9fff]")
Language = Literal["zh", "en"]
SQL_ARGUMENT = {"zh": "要执行的 SELECT 语句", "en": "the SELECT statement to run"}
NOTES = {
    "zh": {
        "at_least": "至少 ",
        "more_rows": "结果过多，共{counted} 条，只返回前 {n} 条",
        "first_rows": "结果过长，只显示前 {n} 条，共 {counted} 条",
        "cut_row": "结果过长，只显示前 1 条，共 {counted} 条，“…”处有删节",
        "no_row": "单条结果过长，请减少查询的列",
    },
    "en": {
        "at_least": "at least ",
        "more_rows": "too many rows: {counted} in all, only the first {n} are here",
        "first_rows": "too long: only the first {n} are here, of {counted} in all",
        "cut_row": "too long: only the first is here, of {counted} in all, and what ends in “…” is cut",
        "no_row": "rows too long; select fewer columns",
    },
}


def language_of(description: str) -> Language:
    """Chinese where the tool's description has a Chinese character, English otherwise."""
    return "zh" if HAN.search(description) else "en"


def parameters_in(language: Language) -> dict[str, Any]:
    """The JSON schema of the tool's arguments."""
    return {
        "type": "object",
        "properties": {"sql": {"type": "string", "description": SQL_ARGUMENT[language]}},
        "required": ["sql"],
        "additionalProperties": False,
    }


def sql_tool(database: Database, *, description: str, max_chars: int) -> Tool:
    """The tool over `database`; `max_chars` (>= 100) bounds the JSON that the model sees of one query.

    Its arguments and notes are said in the language of `description`.
    """
    language = language_of(description)

    async def invoke(context: EpisodeContext, raw: str) -> str:
        try:
            sql = parse_sql(raw)
        except BadArguments as exc:
            context.n_bad_tool_calls += 1
            return render_result(QueryResult(error=str(exc)), max_chars=max_chars, language=language)
        started = time.time()
        try:
            result = await database.query(sql)
        except DatabaseFault as fault:
            context.fault = fault
            raise
        context.timeline.append(("tool", started, time.time()))
        turn = max(1, context.n_turns)
        context.sql_calls.append(SqlCall(sql=writable(sql[:MAX_SQL_CHARS]), result=result, turn=turn))
        context.call_keys.append((QUERY, " ".join(sql.split()).rstrip("; ")))
        return render_result(result, max_chars=max_chars, language=language)

    description = description.replace("{dialect}", TITLES[database.dialect])
    parameters = parameters_in(language)
    return Tool(name=QUERY, description=description, parameters=parameters, invoke=invoke, strict=True)


def parse_sql(raw: str) -> str:
    """The `sql` of a tool call's arguments. Raises BadArguments with a text for the model."""
    arguments = parse_object(raw)
    if "sql" not in arguments:
        raise BadArguments('argument sql is missing; expected {"sql": "SELECT ..."}')
    sql = arguments["sql"]
    if not isinstance(sql, str) or not sql.strip():
        raise BadArguments(f"sql must be a non-empty string, not {type(sql).__name__}")
    return sql


def render_result(result: QueryResult, *, max_chars: int, language: Language = "zh") -> str:
    """JSON for the model: {status, records, count, error?, note?}, at most `max_chars` (>= 100) characters.

    Too long: fewer records; one record too long: its longest cells end in "…"; `note` says so. `count` is the number of
    rows of the result, shown or not.
    """
    if result.error is not None:
        return _error(result.error, max_chars)
    notes, n_rows = NOTES[language], len(result.rows)
    counted = f"{notes['at_least'] if result.truncated else ''}{n_rows}"
    records = _first_records(result, max_chars)
    if len(records) == n_rows:
        note = notes["more_rows"].format(counted=counted, n=n_rows) if result.truncated else ""
        whole = _success(records, n_rows, note)
        if len(whole) <= max_chars:
            return whole

    def first(n: int) -> str:
        return _success(records[:n], n_rows, notes["first_rows"].format(counted=counted, n=n))

    def first_cut(cell_chars: int) -> str:
        record = {name: _shorten(value, cell_chars) for name, value in records[0].items()}
        return _success([record], n_rows, notes["cut_row"].format(counted=counted))

    return (
        _longest(first, len(records) - 1, max_chars)
        or _longest(first_cut, max_chars if records else 0, max_chars)
        or _success([], n_rows, notes["no_row"])
    )


def _first_records(result: QueryResult, max_chars: int) -> list[Record]:
    """The first records, up to the one that no longer fits: what is not shown costs no time."""
    records: list[Record] = []
    n_chars = 0
    for row in result.rows:
        records.append({name: plain_value(value, UNLIMITED) for name, value in zip(result.columns, row, strict=True)})
        n_chars += len(_dumps(records[-1]))
        if n_chars > max_chars:
            break
    return records


def _error(error: str, max_chars: int) -> str:
    def render(n: int) -> str:
        return _dumps({"status": "error", "records": [], "count": 0, "error": _shorten(error, n)})

    return _longest(render, len(error), max_chars) or render(0)


def _longest(render: Callable[[int], str], high: int, max_chars: int) -> str:
    """What is rendered of the largest n in 1..high that fits; "" when none does."""
    n = bisect.bisect_right(range(1, high + 1), max_chars, key=lambda n: len(render(n)))
    return render(n) if n else ""


def _success(records: list[Record], count: int, note: str) -> str:
    body = {"status": "success", "records": records, "count": count}
    return _dumps(body | {"note": note} if note else body)


def _shorten(value: Any, n_chars: int) -> Any:
    return value[:n_chars] + "…" if isinstance(value, str) and len(value) > n_chars else value


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
