"""An MCP server that gives no list of tools in time is told with a reason."""

from __future__ import annotations

import asyncio

import pytest

from foundation.background import LoopThread
from foundation.errors import UserError
from sql_agent.agent.mcp_session import McpSession
from sql_agent.config.agent import McpConfig


def test_a_server_that_takes_too_long_is_told_as_that() -> None:
    loop = LoopThread("test")
    session = McpSession("slow", McpConfig(command="python"), loop)
    with pytest.raises(UserError, match="agent.mcp.slow gives no list of tools: it took too long"):
        session.wait_for(asyncio.sleep(60), timeout_s=0.05)
    loop.close()
