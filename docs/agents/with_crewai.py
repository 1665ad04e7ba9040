"""A crew of one with a tool: agent.command = "PYTHON docs/agents/with_crewai.py"."""

import json
import os
import sqlite3
import sys

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool


@tool
def query_database_by_sql(sql: str) -> str:
    """Run one SELECT on the database."""
    with sqlite3.connect("file:sql_agent/data/medical.db?mode=ro", uri=True) as connection:
        return json.dumps(connection.execute(sql).fetchmany(20), ensure_ascii=False)


question = json.loads(sys.stdin.readline())
llm = LLM(model=os.environ["OPENAI_MODEL"], provider="openai", base_url=os.environ["OPENAI_BASE_URL"])
agent = Agent(role="Reader", goal="Answer from the database.", backstory="-", llm=llm, tools=[query_database_by_sql])
task = Task(description=question["question"], expected_output="the answer", agent=agent)
print(" ".join(str(Crew(agents=[agent], tasks=[task], verbose=False).kickoff()).split()))
