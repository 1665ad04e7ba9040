"""An MCP server over stdio that reads and writes the files of the folder that it is given."""

from __future__ import annotations

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

FOLDER = Path(sys.argv[1])
server = MCPServer("files", log_level="ERROR")


@server.tool(structured_output=False)
async def read_file(name: str) -> str:
    """The text of a file."""
    return (FOLDER / name).read_bytes().decode()


@server.tool()
async def write_file(name: str, text: str) -> str:
    """Give a file this text."""
    (FOLDER / name).write_bytes(text.encode())
    return "written"


server.run()
