"""Section `agent`: how the agent talks to the model."""

from __future__ import annotations

from pydantic import Field

from sql_agent.config.node import Node


class AgentConfig(Node):
    """How the agent talks to the model."""

    max_turns: int = Field(
        default=6, ge=1, le=64, description="most LLM calls in one episode; verl gets the same number"
    )
    system_prompt: str = Field(
        default="auto",
        description="a file of sql_agent/prompts without .txt, or a path; auto: the one that fits policy and tables",
    )
    tool_description: str = Field(
        default="在数据库中执行一条只读 SQL 查询（SQLite 语法，仅限 SELECT），返回 JSON。可查询的表和列见系统提示。",
        description="what the model is told of query_database_by_sql",
    )
    tools: list[str] = Field(
        default=["sql"],
        description="sql, and tools of your own: a module or .py file, or MODULE:NAME for one function or class of it",
    )
    tool_timeout_s: float = Field(default=30.0, gt=0, description="longest wait for one call of a tool other than sql")
    tool_max_chars: int = Field(
        default=2000, ge=100, description="most characters that the model sees of such a call; the rest is cut"
    )
    llm_timeout_s: float = Field(default=120.0, gt=0, description="longest wait for one LLM call")
    repeat_limit: int = Field(default=3, ge=2, description="same call this often in a row ends the episode")
