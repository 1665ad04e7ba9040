"""The tools `list_tables`, `describe_table` and `sample_values`: a database's schema for a model that asks for it.

Guarantees: they tell what the SQL tool may read and nothing else; values come through the same guard; a name that there
is not is an error text for the model. `agent.tools = ["sql", "schema"]` offers them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from foundation.errors import did_you_mean
from sql_agent.agent.tool import BadArguments, EpisodeContext, Tool, ToolFailed, parse_object, recorded
from sql_agent.environment.database import Database

SAMPLES, MOST_SAMPLES, CELL_CHARS = 5, 20, 100
Work = Callable[[Database, dict[str, Any]], Coroutine[Any, Any, Any]]


async def list_tables(database: Database, arguments: dict[str, Any]) -> Any:
    return {table: f"{len(columns)} columns" for table, columns in database.schema().items()}


async def describe_table(database: Database, arguments: dict[str, Any]) -> Any:
    details = database.details()[_table(database, arguments)]
    columns = [
        {"name": name, "type": kind} | ({"primary_key": True} if is_key else {})
        for name, kind, is_key in details["columns"]
    ]
    links = [
        {"column": column, "references": f"{parent}.{key}"}
        for own, parent, keys in details["foreign_keys"]
        for column, key in zip(own, keys, strict=True)
    ]
    return {"columns": columns, "foreign_keys": links} if links else {"columns": columns}


async def sample_values(database: Database, arguments: dict[str, Any]) -> Any:
    table = _table(database, arguments)
    column = _one_of(database.schema()[table], arguments, "column")
    limit = arguments.get("limit", SAMPLES)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST_SAMPLES:
        raise BadArguments(f"limit must be a number from 1 to {MOST_SAMPLES}, not {limit!r:.40}")
    name = database.quoted(column)
    source = f"{database.quoted(table)} WHERE {name} IS NOT NULL"
    result = await database.query(f"SELECT DISTINCT {name} FROM {source} LIMIT {limit}")
    if result.error:
        raise ToolFailed(result.error)
    return [value[:CELL_CHARS] if isinstance(value, str) else value for (value,) in result.rows]


def _table(database: Database, arguments: dict[str, Any]) -> str:
    return _one_of(list(database.schema()), arguments, "table")


def _one_of(names: list[str], arguments: dict[str, Any], key: str) -> str:
    """The name as the database writes it. Raises BadArguments with those that there are."""
    wish = arguments.get(key)
    if not isinstance(wish, str):
        raise BadArguments(f"{key} must be a name")
    match = next((name for name in names if name.lower() == wish.strip().lower()), None)
    if match is None:
        raise BadArguments(f"no {key} {wish!r:.100}; there are: {', '.join(names)}{did_you_mean(wish, names)}")
    return match


PROPERTIES: dict[str, dict[str, Any]] = {
    "table": {"type": "string", "description": "name of a table"},
    "column": {"type": "string", "description": "name of one of its columns"},
    "limit": {"type": "integer", "description": f"most values, at most {MOST_SAMPLES} ({SAMPLES} if left out)"},
}
# What does it, its description, and its arguments, of which `limit` may be left out.
TOOLS: list[tuple[Work, str, list[str]]] = [
    (list_tables, "List the tables of the database.", []),
    (describe_table, "Columns, types and keys of a table.", ["table"]),
    (sample_values, "Some distinct values of a column.", ["table", "column", "limit"]),
]


def schema_tools(database: Database) -> list[Tool]:
    return [_tool(database, *about) for about in TOOLS]


def _tool(database: Database, work: Work, description: str, known: list[str]) -> Tool:
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {key: PROPERTIES[key] for key in known},
        "required": [key for key in known if key != "limit"],
        "additionalProperties": False,
    }

    async def call(_context: EpisodeContext, raw: str) -> Any:
        arguments = parse_object(raw)
        if unknown := [key for key in arguments if key not in known]:
            raise BadArguments(f"no argument {unknown[0]!r:.60}; there are: {', '.join(known) or 'none'}")
        return await work(database, arguments)

    return recorded(work.__name__, description, parameters, call)
