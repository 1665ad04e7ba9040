"""The tools of an MCP server, as agent.mcp names it.

Guarantees: the tools are those that the server lists, in its order, less what the allow-list leaves out; descriptions,
schemas and results hold no marker of a chat template and have a largest size; no argument that a model can write ends
the session. Not covered: a server that sends gigabytes, which this process would read.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
from collections.abc import Callable
from typing import Any

from mcp import MCPError, types

from foundation.errors import UserError, did_you_mean
from foundation.files import writable
from sql_agent.agent.mcp_session import McpSession
from sql_agent.agent.tool import (
    NAME,
    BadArguments,
    EpisodeContext,
    Tool,
    ToolFailed,
    as_text,
    cut,
    parse_object,
    recorded,
)

logger = logging.getLogger(__name__)
MAX_TOOLS = 128
MAX_DESCRIPTION_CHARS = 2000  # of a tool; a text inside a schema has a quarter
MAX_SCHEMA_CHARS = 10_000
MAX_DEPTH = 32
LIST_S = 45.0  # a server's start included


def load_mcp(session: McpSession) -> list[Tool]:
    """The tools of a server. Raises UserError, also when it does not answer."""
    listed = session.wait_for(_list(session), timeout_s=LIST_S)
    names = [tool.name for tool in listed]
    wanted = session.config.tools or names
    if missing := [tool for tool in wanted if tool not in names]:
        hint = did_you_mean(missing[0], names)
        raise UserError(
            f"agent.mcp.{session.name}.tools: the server has no tool {missing[0]!r}{hint}. It lists "
            f"{', '.join(names) or 'none'}"[:700]
        )
    return [tool for description in listed if description.name in wanted if (tool := _tool(session, description))]


async def _list(session: McpSession) -> list[types.Tool]:
    listed: list[types.Tool] = []
    cursor: str | None = None
    while True:
        page = types.PaginatedRequestParams(cursor=cursor)
        answer = await session.ask(types.ListToolsRequest(params=page), types.ListToolsResult)
        listed += answer.tools
        cursor = answer.next_cursor
        if not cursor or not answer.tools or len(listed) > MAX_TOOLS:
            return listed[:MAX_TOOLS]


def _tool(session: McpSession, listed: types.Tool) -> Tool | None:
    """The tool; None, with a warning, for one that cannot be shown to a model. Raises UserError where it was named."""
    reason = ""
    parameters = {}
    with contextlib.suppress(BadArguments):
        schema = {"properties": {}, **listed.input_schema}
        parameters = _with_texts(schema, lambda text: cut(writable(text), MAX_DESCRIPTION_CHARS // 4))
    if not NAME.fullmatch(listed.name):
        reason = "a name holds letters, digits, '_' and '-', at most 64"
    elif not parameters:
        reason = f"its schema is nested more than {MAX_DEPTH} deep"
    elif len(json.dumps(parameters, ensure_ascii=False)) > MAX_SCHEMA_CHARS:
        reason = f"its schema has more than {MAX_SCHEMA_CHARS} characters"
    if reason and session.config.tools:
        raise UserError(f"agent.mcp.{session.name}.tools: {listed.name!r:.100} cannot be used: {reason}. Leave it out")
    if reason:
        logger.warning("agent.mcp.%s: the tool %.100r is left out: %s", session.name, listed.name, reason)
        return None

    description = cut(writable(listed.description or ""), MAX_DESCRIPTION_CHARS)
    return recorded(listed.name, description, parameters, functools.partial(_call, session, listed.name))


async def _call(session: McpSession, name: str, context: EpisodeContext, raw: str) -> str:
    params = types.CallToolRequestParams(name=name, arguments=_with_texts(parse_object(raw), writable))
    try:
        answer = await session.call(
            types.CallToolRequest(params=params), types.CallToolResult, timeout_s=context.timeout_s
        )
    except MCPError as exc:
        if exc.error.code == types.INVALID_PARAMS:
            raise BadArguments(exc.error.message) from exc
        raise ToolFailed(exc.error.message) from exc
    if answer.is_error:
        raise ToolFailed(text_of(answer))
    return text_of(answer)


def text_of(answer: types.CallToolResult) -> str:
    """What the model sees of a result: its texts, a description of what is none, JSON where it has only that."""
    if not answer.content and answer.structured_content is not None:
        return as_text(answer.structured_content)
    return "\n".join(_part(part) for part in answer.content)


def _part(part: types.ContentBlock) -> str:
    if isinstance(part, types.TextContent):
        return part.text
    if isinstance(part, types.ImageContent | types.AudioContent):
        return f"({part.type}, {part.mime_type}, {len(part.data)} characters of base64)"
    if isinstance(part, types.ResourceLink):
        return f"(resource {part.name}: {part.uri})"
    resource = part.resource
    if isinstance(resource, types.TextResourceContents):
        return resource.text
    return f"(resource {resource.uri}, {resource.mime_type}, {len(resource.blob)} characters of base64)"


def _with_texts(value: Any, change: Callable[[str], str], depth: int = 0) -> Any:
    """The JSON value with each text changed. Raises BadArguments for one that the client's writer cannot take."""
    if depth > MAX_DEPTH:
        raise BadArguments(f"the arguments are nested more than {MAX_DEPTH} deep")
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_with_texts(item, change, depth + 1) for item in value]
    if isinstance(value, dict):
        return {change(key): _with_texts(item, change, depth + 1) for key, item in value.items()}
    return value
