"""hello_agents.agents: an agent with tools, played by openai-agents."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agents import Agent, ModelSettings, Runner, set_tracing_disabled
from openai import AsyncOpenAI

from sql_agent.agent.call_ids import PolicyModel
from sql_agent.api.compat.hello_agents.core import LLMConfig


class SimpleAgent:
    """An agent that answers a text, calling its tools."""

    def __init__(self, name: str, llm_config: LLMConfig, tools: Sequence[Any] = (), system_prompt: str = "") -> None:
        self._config = llm_config
        self._agent = Agent(
            name=name,
            instructions=system_prompt or None,
            tools=[tool.as_agent_tool() for tool in tools],
            model_settings=ModelSettings(temperature=llm_config.temperature),
        )

    def run(self, text: str) -> str:
        set_tracing_disabled(True)
        return asyncio.run(self._run(text))

    async def _run(self, text: str) -> str:
        async with AsyncOpenAI() as client:
            agent = self._agent.clone(model=PolicyModel(self._config.model, client))
            return str((await Runner.run(agent, text, max_turns=self._config.max_turns)).final_output)
