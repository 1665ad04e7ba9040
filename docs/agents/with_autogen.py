"""An AssistantAgent of AutoGen with a tool: agent.command = "PYTHON docs/agents/with_autogen.py"."""

import asyncio
import json
import os
import sqlite3
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient


def query_database_by_sql(sql: str) -> str:
    """Run one SELECT on the database."""
    with sqlite3.connect("file:sql_agent/data/medical.db?mode=ro", uri=True) as connection:
        return json.dumps(connection.execute(sql).fetchmany(20), ensure_ascii=False)


async def main() -> None:
    question = json.loads(sys.stdin.readline())
    client = OpenAIChatCompletionClient(
        model=os.environ["OPENAI_MODEL"],  # address and key are read from the environment too
        model_info={
            "function_calling": True,
            "json_output": False,
            "vision": False,
            "family": "unknown",
            "structured_output": False,
        },
        max_retries=0,
    )
    agent = AssistantAgent(
        "agent",
        client,
        tools=[query_database_by_sql],
        max_tool_iterations=5,
        system_message="Answer from the database.",
    )
    result = await agent.run(task=question["question"])
    print(" ".join(str(result.messages[-1].content).split()))


asyncio.run(main())
