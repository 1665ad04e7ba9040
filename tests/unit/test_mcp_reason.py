"""An MCP server that gives no list of tools is named while it is awaited, and told with a reason and a remedy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from foundation.background import LoopThread
from foundation.errors import UserError
from sql_agent.agent import mcp_session
from sql_agent.agent.mcp_session import McpSession
from sql_agent.agent.mcp_tools import load_mcp
from sql_agent.config.agent import McpConfig

SILENT = "import time; time.sleep(600)"


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    thread = LoopThread("test")
    yield thread
    thread.close()


def test_a_server_that_takes_too_long_is_told_as_that(loop: LoopThread) -> None:
    session = McpSession("slow", McpConfig(command="python"), loop)
    with pytest.raises(UserError, match="agent.mcp.slow gives no list of tools: it took too long. Start 'python' by"):
        session.wait_for(asyncio.sleep(60), timeout_s=0.05)


def test_a_server_that_never_answers_is_named_while_it_is_awaited(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(mcp_session, "QUIET_S", 0.1)
    monkeypatch.setattr(mcp_session, "START_S", 0.5)
    session = McpSession("inv", McpConfig(command="python", args=["-c", SILENT]), loop)
    with pytest.raises(UserError) as raised:
        load_mcp(session)
    session.close()
    assert "agent.mcp.inv: waiting for its list of tools, at most 45 s" in caplog.text
    assert str(raised.value) == (
        "agent.mcp.inv gives no list of tools: MCP server 'inv' did not open (no answer within 0.5 s). Start 'python' "
        "by hand, or leave the server out"
    )


def test_an_address_that_nobody_answers_at_was_never_open(loop: LoopThread) -> None:
    session = McpSession("far", McpConfig(url="http://127.0.0.1:9/mcp"), loop)
    with pytest.raises(UserError, match=r"'far' did not open \(ConnectError.*\. See whether its url answers, or leave"):
        load_mcp(session)
    session.close()
