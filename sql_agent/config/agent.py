"""Section `agent`: how the agent talks to the model."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, model_validator

from foundation.chat_request import NOT_OF_A_TEMPLATE, RULES
from sql_agent.config.mcp import McpConfig
from sql_agent.config.node import Node

WAYS_TO_PLAY = ("episode", "command", "agl_class")
OF_PROGRAMS = {"command_env": ("command", "agl_class"), "agl_python": ("agl_class",), "env_map": ("agl_class",)}


class ReaderConfig(Node):
    """A second model that says what in a long tool result matters for the question. READER_ENDPOINTS names it."""

    min_chars: int = Field(default=0, ge=0, description="tool results with more characters are read first; 0: none")
    max_chars: int = Field(default=60_000, ge=1000, description="most characters of a result that the reader sees")
    max_tokens: int = Field(default=512, ge=16, description="longest answer of the reader")
    timeout_s: float = Field(default=60.0, gt=0, description="longest wait for one answer of it")
    attempts: int = Field(default=2, ge=1, description="tries per address")


class AgentConfig(Node):
    """How the agent talks to the model."""

    max_turns: int = Field(default=6, ge=1, le=64, description="most LLM calls in one episode")
    min_turns: int = Field(
        default=1,
        ge=1,
        le=64,
        description="in training, an answer that earns something after fewer LLM calls is left out (too_few_turns)",
    )
    context: Literal["keep", "drop_results", "summarise"] = Field(
        default="keep",
        description="when a conversation gets [too long](15-training.md#long-episodes): it overflows, old tool results "
        "are left out, or the policy writes notes from which it begins again",
    )
    context_tokens: int = Field(
        default=0, ge=0, description="tokens of a conversation, its answer included; 0: what the model server holds"
    )
    keep_results: int = Field(default=1, ge=0, description="latest tool results that drop_results leaves")
    train_summaries: bool = Field(default=True, description="whether the notes of summarise are trained on")
    reader: ReaderConfig = ReaderConfig()
    system_prompt: str = Field(
        default="auto",
        description="a file of sql_agent/prompts without .txt, or a path; auto: the one that fits policy and tables",
    )
    chat_template_kwargs: dict[str, Any] = Field(
        default={},
        description="keys of the model's chat template, sent with each call: `enable_thinking = false` lets Qwen3 "
        "answer without a thought",
    )
    tool_description: str = Field(
        default="在数据库中执行一条只读 SQL 查询（{dialect} 语法，仅限 SELECT），返回 JSON。可查询的表和列见系统提示。",
        description="what the model is told of query_database_by_sql",
    )
    tools: list[str] = Field(
        default=["sql"],
        description="sql, schema (list_tables, describe_table and sample_values beside sql), python, and tools of your "
        "own: a module or .py file, or MODULE:NAME for a part of it",
    )
    mcp: dict[str, McpConfig] = Field(
        default={}, description="[MCP servers](50-extending.md#mcp-servers) by a name of your own: their tools too"
    )
    tool_timeout_s: float = Field(default=30.0, gt=0, description="longest wait for one call of a tool other than sql")
    tool_memory_mib: int = Field(
        default=2048,
        ge=16,
        description="memory that a process of [tools of your own](50-extending.md#tools), or of agent.episode, may add",
    )
    tool_max_processes: int = Field(default=256, ge=1, description="most processes that one of them may have running")
    tool_max_output_kib: int = Field(
        default=1024, ge=1, description="most that such a tool, or an episode, may print in one call"
    )
    tools_in_process: bool = Field(
        default=False,
        description="tools of your own and agent.episode run in the runner's process: for trusted ones that keep a "
        "model or a connection",
    )
    tool_max_chars: int = Field(
        default=2000, ge=100, description="most characters that the model sees of such a call; the rest is cut"
    )
    episode: str = Field(
        default="", description="MODULE:FUNCTION or FILE.py:FUNCTION, an async function that plays an episode instead"
    )
    command: str = Field(default="", description="a program that plays an episode instead, started for each rollout")
    agl_class: str = Field(
        default="",
        description="MODULE:CLASS or FILE.py:CLASS, an agent written for [agent-lightning 1.0]"
        "(50-extending.md#an-agent-of-agent-lightning-10) that plays an episode instead, in a process of its own",
    )
    agl_python: str = Field(
        default="python", description="the Python that runs agent.agl_class; python: the one that runs the job"
    )
    env_map: dict[str, str] = Field(
        default={},
        description="variables of agent.agl_class: text, or input.KEY, a key of the question's row",
    )
    command_env: list[str] = Field(
        default=[], description="names of variables that such a program sees besides the usual ones, PATH and HOME"
    )
    episode_timeout_s: float = Field(
        default=600.0, gt=0, description="longest episode of agent.episode, command or agl_class"
    )
    match: str = Field(
        default="", description="train only calls of agents whose name fits this regular expression; empty: all"
    )
    llm_timeout_s: float = Field(default=120.0, gt=0, description="longest wait for one LLM call")
    repeat_limit: int = Field(default=3, ge=2, description="same call this often in a row ends the episode")

    @model_validator(mode="after")
    def _turns_fit(self) -> AgentConfig:
        if self.min_turns > self.max_turns:
            raise ValueError(
                f"agent.min_turns = {self.min_turns} must not exceed agent.max_turns = {self.max_turns}: no answer "
                "would be trained"
            )
        return self

    @model_validator(mode="after")
    def _schema_is_of_a_database(self) -> AgentConfig:
        if "schema" in self.tools and "sql" not in self.tools:
            raise ValueError(f"agent.tools = {self.tools}: schema tells of the database that sql reads; add sql")
        return self

    @property
    def custom_episode(self) -> str:
        """The key that plays an episode in place of this project's loop, with its value: `agent.command = 'x'`; ""."""
        return " and ".join(f"agent.{key} = {getattr(self, key)!r}" for key in WAYS_TO_PLAY if getattr(self, key))

    @model_validator(mode="after")
    def _one_way_to_play(self) -> AgentConfig:
        if len([key for key in WAYS_TO_PLAY if getattr(self, key)]) > 1:
            raise ValueError(f"{self.custom_episode} are two ways to play an episode; leave one of them out")
        for key, owners in OF_PROGRAMS.items():
            is_set = getattr(self, key) != AgentConfig.model_fields[key].default
            if is_set and not any(getattr(self, owner) for owner in owners):
                raise ValueError(
                    f"agent.{key} belongs to {' and '.join(f'agent.{owner}' for owner in owners)}, which is not set; "
                    f"leave agent.{key} out"
                )
        if self.context != "keep" and self.custom_episode:
            raise ValueError(
                f"agent.context = {self.context} shortens the history of this project's own loop, and "
                f"{self.custom_episode} keeps its own: leave one of them out"
            )
        if self.match and not self.custom_episode:
            raise ValueError(
                f"agent.match = {self.match!r} chooses among the agents of agent.episode or a program, and there "
                "is only one agent without them; leave it out"
            )
        try:
            re.compile(self.match)
        except re.error as exc:
            raise ValueError(f"agent.match = {self.match!r} is no regular expression ({exc})") from exc
        return self

    @model_validator(mode="after")
    def _keys_of_the_template(self) -> AgentConfig:
        rule = RULES["chat_template_kwargs"]
        if not rule.fits(self.chat_template_kwargs):
            raise ValueError(
                f"agent.chat_template_kwargs = {self.chat_template_kwargs!r:.200} {rule.must}, and none of "
                f"{', '.join(sorted(NOT_OF_A_TEMPLATE))}"
            )
        return self

    @model_validator(mode="after")
    def _servers_fit(self) -> AgentConfig:
        for name, server in self.mcp.items():
            if name in self.tools:
                raise ValueError(
                    f"agent.tools names {name!r}, an MCP server: the tools of agent.mcp are there by themselves. Leave "
                    "it out of agent.tools"
                )
            server.check(f"agent.mcp.{name}")
        return self
