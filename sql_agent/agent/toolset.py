"""The tools of a process, as agent.tools names them: made once, on first use, and handed to each episode.

Guarantees: a source that cannot be used is a UserError that names it; no two tools have one name; what is opened here
belongs to the process that uses it first, so a Toolset may be made before a fork.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from foundation.background import LoopThread
from foundation.errors import UserError
from foundation.files import fingerprint
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.mcp_session import McpSession
from sql_agent.agent.mcp_tools import load_mcp
from sql_agent.agent.own_remote import RemoteTools
from sql_agent.agent.python_tool import PYTHON, python_tool
from sql_agent.agent.schema_tools import schema_tools
from sql_agent.agent.sql_tool import sql_tool
from sql_agent.agent.tool import Environment, Kind, Tool
from sql_agent.config import AgentTree, agents_of, database_place
from sql_agent.environment.databases import Databases
from sql_agent.environment.sandbox.pool import Sandbox
from sql_agent.errors import DatabaseFault, ToolFault
from sql_agent.records import Episode, Question

SQL, SCHEMA = "sql", "schema"


def databases_of(config: AgentTree) -> dict[str, Path | str]:
    """The files, folders or servers that the agents of a run query: "database", and "database of NAME" where an agent
    has another one."""
    places: dict[str, Path | str] = {}
    for name, settings in agents_of(config).items():
        path = database_place(settings.database)
        if SQL in settings.agent.tools and path not in places.values():
            places[f"database of {name}" if places else "database"] = path
    return places


def fingerprints_of(config: AgentTree) -> dict[str, str]:
    """The name of each file of `databases_of` -> 16 hex digits of what it holds; of a folder, of its names and sizes;
    of a server, of its URL.

    Raises UserError.
    """
    return {name: _fingerprint(path) for name, path in databases_of(config).items()}


def _fingerprint(path: Path | str) -> str:
    if isinstance(path, str):
        return hashlib.sha256(path.encode()).hexdigest()[:16]
    if not path.is_dir():
        return fingerprint(path)
    listed = sorted(f"{file.relative_to(path)} {file.stat().st_size}" for file in path.glob("*/*.sqlite"))
    return hashlib.sha256("\n".join(listed).encode()).hexdigest()[:16]


@dataclass
class EpisodeTools:
    """What one episode plays with. `told` is what its environments say beside the question."""

    tools: list[Tool]
    observations: list[str]
    environments: list[Environment]

    async def reward(self) -> float | None:
        """The mean of what the environments give, in [0, 1]; None where none gives any. Raises ToolFault."""
        rewards = [await environment.reward() for environment in self.environments]
        known = [reward for reward in rewards if reward is not None]
        return sum(known) / len(known) if known else None


class Toolset:
    """Opens what the configured tools need."""

    def __init__(self, config: AgentTree) -> None:
        self._config = config
        self.databases = Databases(config.database) if SQL in config.agent.tools else None
        self._sandbox = Sandbox(config.python) if PYTHON in config.agent.tools else None
        self._sessions: list[McpSession] = []
        self._loading = threading.Lock()

    @cached_property
    def _loop(self) -> LoopThread:
        return LoopThread("mcp")

    @cached_property
    def _own_tools(self) -> RemoteTools | None:
        """The user's tools and function of agent.episode, in processes of their own."""
        agent = self._config.agent
        sources = [source for source in agent.tools if source not in (SQL, SCHEMA, PYTHON)]
        if not sources and not agent.episode:
            return None
        return RemoteTools(sources, agent)

    @property
    def loop(self) -> LoopThread | None:
        """Where the processes of tools are spoken with, if there are any: no code of the user's runs in it."""
        return self._own_tools.loop if self._own_tools else None

    def _tools(self, db_id: str) -> list[Tool]:
        """Those of agent.tools, of a database over the one with this id. Raises DatabaseFault, UserError."""
        tools: list[Tool] = []
        own = iter(self._by_source)
        database = self.databases.of(db_id) if self.databases else None
        for source in self._config.agent.tools:
            if database and source == SQL:
                max_chars = self.max_chars(self._config.database.max_chars)
                tools.append(sql_tool(database, description=self._config.agent.tool_description, max_chars=max_chars))
            elif database and source == SCHEMA:
                tools += schema_tools(database)
            elif self._sandbox and source == PYTHON:
                tools.append(python_tool(self._sandbox))
            else:
                tools += next(own)[0]
        return tools

    @property
    def _by_source(self) -> list[tuple[list[Tool], list[Kind]]]:
        return self._own_tools.by_source if self._own_tools else []

    @property
    def _kinds(self) -> list[Kind]:
        return [kind for _, kinds in self._by_source for kind in kinds]

    @cached_property
    def _served(self) -> list[Tool]:
        """The tools of MCP servers, which are started for it."""
        if not self._sessions:
            servers = self._config.agent.mcp
            self._sessions = [McpSession(name, server, self._loop) for name, server in servers.items()]
        return [tool for session in self._sessions for tool in load_mcp(session)]

    @cached_property
    def _offered(self) -> list[Tool]:
        try:
            tools = self._tools(self.databases.any_id if self.databases else "")
        except DatabaseFault as fault:
            raise UserError(str(fault)) from fault
        every = [*tools, *self._served, *(tool for kind in self._kinds for tool in kind.tools)]
        if twice := [name for name, n in Counter(tool.name for tool in every).items() if n > 1]:
            raise UserError(
                f"agent.tools = {self._config.agent.tools} and agent.mcp = {list(self._config.agent.mcp)}: two tools "
                f"are called {twice[0]!r}; rename one, or leave it out of the server's tools"
            )
        return every

    @property
    def offered(self) -> list[Tool]:
        """What the model is told of all tools, in order. Raises UserError."""
        with self._loading:
            return self._offered

    @property
    def kinds(self) -> list[Kind]:
        """The environments that are begun with each question, which may tell more than it. Raises UserError."""
        with self._loading:
            return self._kinds

    def check(self) -> None:
        """Raise UserError for tools that cannot be used, DatabaseFault for a database that does not answer."""
        if self.databases:
            self.databases.check()
        if self._sandbox:
            self._sandbox.check()
        _ = self.offered

    @asynccontextmanager
    async def for_episode(self, question: Question) -> AsyncIterator[EpisodeTools]:
        """The tools of one episode, its environments begun. Raises ToolFault where one breaks, or a server is gone, and
        DatabaseFault for a question whose database is not there."""
        await self._load()
        tools = self._tools(question.db_id if self._config.database.folder else "")
        tools += self._served
        begun: list[Environment] = []
        observations: list[str] = []
        agent = self._config.agent
        max_chars = self.max_chars(agent.tool_max_chars)
        try:
            for kind in self._kinds:
                environment = kind.begin(agent.tool_timeout_s)
                begun.append(environment)
                if observation := await environment.reset(question, max_chars=max_chars):
                    observations.append(observation)
            for environment in begun:
                tools += environment.tools()
            yield EpisodeTools(tools, observations, begun)
        finally:
            for environment in begun:
                await environment.close()

    async def play(self, question: Question, llm: LLMEndpoint, tools: Sequence[Tool]) -> str | Episode:
        """What agent.episode gives. Raises Overdue, a Fault, and what the function raises."""
        await self._load()
        assert self._own_tools
        return await self._own_tools.play(question, llm, [tool.spec for tool in tools])

    async def _load(self) -> None:
        """Make the tools, in a thread where that means to wait for processes: other episodes go on."""
        if "_offered" in self.__dict__:
            return
        try:
            await asyncio.to_thread(lambda: self.offered)
        except UserError as exc:  # check() found them before the run
            raise ToolFault(str(exc)) from exc

    def max_chars(self, limit: int) -> int:
        """Most characters of a result as a tool gives it: what a reader takes, where there is one."""
        reader = self._config.agent.reader
        return max(limit, reader.max_chars) if reader.min_chars else limit

    def close(self) -> None:
        for session in self._sessions:
            session.close()
        for opened in (self.databases, self._sandbox):
            if opened:
                opened.close()
        if own_tools := self.__dict__.get("_own_tools"):
            own_tools.close()
        if "_loop" in self.__dict__:
            self._loop.close()
