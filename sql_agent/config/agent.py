"""Section `agent`: how the agent talks to the model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

from foundation.chat_request import NOT_OF_A_TEMPLATE, RULES
from sql_agent.config.node import Node, option

WAYS_TO_PLAY = ("episode", "command", "agl_class")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ADDRESS = re.compile(r"https?://[^/@\s]+(/\S*)?")


class ReaderConfig(Node):
    """A second model that says what in a long tool result matters for the question. READER_ENDPOINTS names it."""

    min_chars: int = option(0, "tool results with more characters are read first; 0: none", ge=0)
    max_chars: int = option(60_000, "most characters of a result that the reader sees", ge=1000)
    max_tokens: int = option(512, "longest answer of the reader", ge=16)
    timeout_s: float = option(60.0, "longest wait for one answer of it", gt=0)
    attempts: int = option(2, "tries per address", ge=1)


class McpConfig(Node):
    """A server whose tools the model can call: `command`, spoken to over stdin and stdout, or `url`, over HTTP.

    No value is a secret: `headers`, and in `env` what begins with "$", name variables of the run's environment.
    """

    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}
    tools: list[str] = option([], "names of tools; empty: all")

    def check(self, key: str) -> None:
        """Raise ValueError, naming `key`, for what does not go together."""
        if bool(self.command) == bool(self.url):
            raise ValueError(
                f"{key}: command = {self.command!r}, url = {_shown(self.url)!r}: a server is a program or an address. "
                "Set exactly one of the two"
            )
        for name, owner in (("args", "command"), ("env", "command"), ("headers", "url")):
            if getattr(self, name) and not getattr(self, owner):
                raise ValueError(f"{key}: {name} belongs to {owner}, which is not set; leave {name} out")
        if self.url and not ADDRESS.fullmatch(self.url):
            raise ValueError(
                f"{key}.url = {_shown(self.url)!r} must be http://HOST/... or https://HOST/... without a password; "
                "what is secret goes into headers, by the name of a variable"
            )
        for name, value in self.headers.items():
            if not VARIABLE.fullmatch(value):  # not shown: it may be the secret itself
                raise ValueError(
                    f"{key}.headers.{name} must be the name of an environment variable that holds the header's value, "
                    f'and is no such name. Write {name} = "MY_VARIABLE", and set that variable'
                )


def _shown(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//***@", url)


class AgentConfig(Node):
    """How the agent talks to the model."""

    max_turns: int = option(6, "most LLM calls in one episode", ge=1, le=64)
    min_turns: int = option(
        1, "in training, an answer that earns something after fewer LLM calls is left out (too_few_turns)", ge=1, le=64
    )
    context: Literal["keep", "drop_results", "summarise"] = option(
        "keep",
        "when a conversation gets [too long](15-training.md#long-episodes): it overflows, old tool results "
        "are left out, or the policy writes notes from which it begins again",
    )
    context_tokens: int = option(0, "tokens of a conversation with its answer; 0: what the model server holds", ge=0)
    keep_results: int = option(1, "latest tool results that drop_results leaves", ge=0)
    train_summaries: bool = option(True, "whether the notes of summarise are trained on")
    reader: ReaderConfig = ReaderConfig()
    system_prompt: str = option(
        "auto", "a file of sql_agent/prompts without .txt, or a path; auto: the model's own, else by policy and tables"
    )
    chat_template_kwargs: dict[str, Any] = option(
        {}, "keys of the model's chat template, sent with each call, as `enable_thinking = false` for Qwen3"
    )
    tool_description: str = option(
        "在数据库中执行一条只读 SQL 查询（{dialect} 语法，仅限 SELECT），返回 JSON。可查询的表和列见系统提示。",
        "what the model is told of query_database_by_sql, which says the rest in its language, Chinese or English",
    )
    tools: list[str] = option(
        ["sql"],
        "sql, schema (list_tables, describe_table and sample_values beside sql), python, and tools of your "
        "own: a module or .py file, or MODULE:NAME for a part of it",
    )
    mcp: dict[str, McpConfig] = option(
        {}, "[MCP servers](50-extending.md#mcp-servers) by names of your own: their tools"
    )
    tool_timeout_s: float = option(30.0, "longest wait for one call of a tool other than sql", gt=0)
    tool_memory_mib: int = option(
        2048, "memory that a process of [tools of your own](50-extending.md#tools), or of agent.episode, may add", ge=16
    )
    tool_max_processes: int = option(256, "most processes that one of them may have running", ge=1)
    tool_max_output_kib: int = option(1024, "most that such a tool, or an episode, may print in one call", ge=1)
    tool_max_chars: int = option(2000, "most characters that the model sees of such a call; the rest is cut", ge=100)
    episode: str = option("", "MODULE:FUNCTION or FILE.py:FUNCTION, an async function that plays an episode instead")
    command: str = option("", "a program that plays an episode instead, started for each rollout")
    agl_class: str = option(
        "",
        "MODULE:CLASS or FILE.py:CLASS, an agent written for [agent-lightning 1.0]"
        "(50-extending.md#an-agent-of-agent-lightning-10) that plays an episode instead, in a process of its own",
    )
    agl_python: str = option(
        "python", "the Python that runs agent.agl_class; python: the one that runs the job", of="agent.agl_class"
    )
    env_map: dict[str, str] = option(
        {}, "variables of agent.agl_class: text, or input.KEY, a key of the question's row", of="agent.agl_class"
    )
    command_env: list[str] = option(
        [], "variables that such a program sees beside the usual ones", of="agent.command agent.agl_class"
    )
    episode_timeout_s: float = option(600.0, "longest episode of agent.episode, command or agl_class", gt=0)
    match: str = option(
        "",
        "train only calls of agents whose name fits this regular expression; empty: all",
        of="agent.episode agent.command agent.agl_class",
    )
    llm_timeout_s: float = option(120.0, "longest wait for one LLM call", gt=0)
    repeat_limit: int = option(3, "same call this often in a row ends the episode", ge=2)

    @property
    def custom_episode(self) -> str:
        """The key that plays an episode in place of this project's loop, with its value: `agent.command = 'x'`; ""."""
        return " and ".join(f"agent.{key} = {getattr(self, key)!r}" for key in WAYS_TO_PLAY if getattr(self, key))

    def problems(self) -> Iterator[str]:
        if self.min_turns > self.max_turns:
            yield (
                f"agent.min_turns = {self.min_turns} must not exceed agent.max_turns = {self.max_turns}: no answer "
                "would be trained"
            )
        if "schema" in self.tools and "sql" not in self.tools:
            yield f"agent.tools = {self.tools}: schema tells of the database that sql reads; add sql"
        if len([key for key in WAYS_TO_PLAY if getattr(self, key)]) > 1:
            yield f"{self.custom_episode} are two ways to play an episode; leave one of them out"
        if self.context != "keep" and self.custom_episode:
            yield (
                f"agent.context = {self.context} shortens the history of this project's own loop, and "
                f"{self.custom_episode} keeps its own: leave one of them out"
            )
        try:
            re.compile(self.match)
        except re.error as exc:
            yield f"agent.match = {self.match!r} is no regular expression ({exc})"

        yield from self._template_and_servers()

    def _template_and_servers(self) -> Iterator[str]:
        """The problems of both with other keys."""
        rule = RULES["chat_template_kwargs"]
        if not rule.fits(self.chat_template_kwargs):
            yield (
                f"agent.chat_template_kwargs = {self.chat_template_kwargs!r:.200} {rule.must}, and none of "
                f"{', '.join(sorted(NOT_OF_A_TEMPLATE))}"
            )
        for name, server in self.mcp.items():
            if name in self.tools:
                yield (
                    f"agent.tools names {name!r}, an MCP server: the tools of agent.mcp are there by themselves. Leave "
                    "it out of agent.tools"
                )
            server.check(f"agent.mcp.{name}")
