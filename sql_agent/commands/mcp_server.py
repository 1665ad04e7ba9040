"""`agentgrpo mcp`: the tool of `agent.tools = ["sql"]` as an MCP server on stdin and stdout, for any client.

Guarantees: description, schema and JSON results are those of the agent's own tool, limits included. A database that
fails is a JSON-RPC error (internal error) and not a result: it is nobody's mistake.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from mcp import MCPError, types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from foundation.errors import UserError
from sql_agent.agent.sql_tool import sql_tool
from sql_agent.agent.tool import EpisodeContext, Tool
from sql_agent.config import build_config, command_tree, load_recipe
from sql_agent.config.commands import MCP
from sql_agent.environment.databases import Databases
from sql_agent.errors import DatabaseFault


def server_of(tool: Tool) -> Server[Any]:
    """A server with one tool."""

    async def list_tools(_context: Any, _page: Any) -> types.ListToolsResult:
        listed = types.Tool(name=tool.name, description=tool.description, input_schema=tool.parameters)
        return types.ListToolsResult(tools=[listed])

    async def call_tool(_context: Any, request: types.CallToolRequestParams) -> types.CallToolResult:
        if request.name != tool.name:
            raise MCPError(types.INVALID_PARAMS, f"unknown tool {request.name!r}; there is {tool.name}")
        try:
            text = await tool.invoke(EpisodeContext(), json.dumps(request.arguments or {}))
        except DatabaseFault as fault:
            raise MCPError(types.INTERNAL_ERROR, str(fault)) from fault
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    return Server("agentgrpo", on_list_tools=list_tools, on_call_tool=call_tool)


async def serve(tool: Tool) -> None:
    """Answer until stdin is closed."""
    server = server_of(tool)
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


def mcp(
    database: Annotated[Path | None, typer.Option(help="SQLite file (default: the bundled one)")] = None,
    db_id: Annotated[str, typer.Option(help="which database of database.folder")] = "",
    recipe: Annotated[str, typer.Option(help="settings of a folder of recipes/ or a TOML file")] = "",
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="set any key")] = None,
) -> None:
    """Serve query_database_by_sql to an MCP client, which starts this program.

    \b
    agentgrpo mcp --database my.db

    It ends when its input does.
    """
    flags = {"database": {"path": str(database.expanduser().absolute())}} if database else {}
    base = load_recipe(recipe) if recipe else {}
    config = build_config(base, command_tree(MCP, set_ or [], recipe=recipe, flags=flags))
    with Databases(config.database) as databases:
        if problem := databases.problem(db_id):
            raise UserError(f"--db-id: {problem}")
        opened = databases.of(db_id)
        opened.check()
        description, max_chars = config.agent.tool_description, config.database.max_chars
        asyncio.run(serve(sql_tool(opened, description=description, max_chars=max_chars)))
