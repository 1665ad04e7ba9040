"""Calls of an agent's tools, as an episode makes them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from sql_agent.agent.tool import EpisodeContext
from sql_agent.agent.toolset import Toolset
from sql_agent.records import Question


def call(toolset: Toolset, *calls: tuple[str, Any], max_chars: int = 2000) -> tuple[EpisodeContext, list[str]]:
    """Begin an episode and call its tools, one after the other."""
    context = EpisodeContext(max_chars=max_chars, timeout_s=toolset._config.agent.tool_timeout_s)

    async def run() -> list[str]:
        async with toolset.for_episode(Question(id="q", question="2 + 3?")) as offered:
            tools = {tool.name: tool for tool in offered.tools}
            return [
                await tools[name].invoke(context, raw if isinstance(raw, str) else json.dumps(raw))
                for name, raw in calls
            ]

    return context, asyncio.run(run())
