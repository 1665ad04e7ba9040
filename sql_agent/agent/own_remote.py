"""Own tools and episodes in processes of their own, as whoever plays episodes sees them: one call at a time in each.

Guarantees: what a call does to its process - exits, kills it, hangs, blocks, fills memory or output, forks, changes its
directory - ends that call alone: a call that hangs is told as that, any other end is a ToolFault with the tool's name
and the reason, or an EpisodeFault. A process serves again only if a call left it as it was; an environment has one to
itself for its episode. All of them end with the Toolset, and with this process, however that ended. Usable from any
event loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import itertools
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import fields
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from foundation.background import LoopThread, Overdue
from foundation.errors import UserError
from foundation.forked import Died, Forked, Nursery, fork
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.own_function import EncodedResult, result_of
from sql_agent.agent.own_tools import class_of
from sql_agent.agent.tool import EpisodeContext, Kind, Tool, ToolResult, bounded, recorded
from sql_agent.config import AgentConfig
from sql_agent.errors import EpisodeFault, Fault, ToolFault
from sql_agent.records import Episode, Question

logger = logging.getLogger(__name__)
HOST = "sql_agent.agent.own_child"
START_S = 180.0  # to import what the sources import
GRACE_S = 3.0  # of a process that ends its own call at the limit
MOST_IDLE = 16
ANSWER_BYTES = 1 << 24
NOT_SENT = ("seeds", "marks")  # of an endpoint: the relay's affair
CLOSE_S = 15.0
FAULT = TypeAdapter(tuple[str, str, str])  # text, kind and reason
# What a process gives by what it is to do.
VALUES: dict[str, TypeAdapter[Any]] = {
    "call": TypeAdapter(ToolResult),
    "method": TypeAdapter(ToolResult),
    "episode": TypeAdapter(EncodedResult | None),
    "reset": TypeAdapter(str),
    "reward": TypeAdapter(Annotated[float, Field(ge=0, le=1)]),
    "close": TypeAdapter(None),
}


class Nurseries:
    """The loop and the process that all toolsets of this process fork from; both end with the last user."""

    _lock, _n_users, _pid = threading.Lock(), 0, 0
    _loop: LoopThread
    _nursery: Nursery

    @classmethod
    def take(cls) -> tuple[LoopThread, Nursery]:
        """Give it back with `leave`."""
        with cls._lock:
            if not cls._n_users or cls._pid != os.getpid():
                cls._n_users, cls._pid = 0, os.getpid()
                cls._loop, cls._nursery = LoopThread("tools"), Nursery(HOST)
            cls._n_users += 1
            return cls._loop, cls._nursery

    @classmethod
    def leave(cls) -> None:
        """What was taken is not used any more."""
        with cls._lock:
            cls._n_users -= cls._pid == os.getpid()
            if not cls._n_users:
                cls._nursery.close()
                cls._loop.close()


class RemoteTools:
    """The sources of one agent in processes of their own. Raises UserError when they cannot be used."""

    def __init__(self, sources: list[str], agent: AgentConfig) -> None:
        self._agent = agent
        self._settings: dict[str, Any] = {
            "sources": sources,
            "episode": agent.episode,
            "path": sys.path,
            "memory_bytes": agent.tool_memory_mib << 20,
            "most_processes": agent.tool_max_processes,
        }
        self._idle: list[Forked] = []
        self._processes: set[Forked] = set()
        self._host: Forked | None = None
        self._opening = asyncio.Lock()
        self.loop, self._nursery = Nurseries.take()
        self._is_open = True
        named = f"agent.tools = {sources}, agent.episode = {agent.episode!r}"
        try:
            described = self.loop.submit(self._begin()).result()
        except (UserError, Died) as exc:
            self.close()
            if isinstance(exc, UserError):
                raise
            raise UserError(
                f"{named}: the process that imports them {exc}. Mend what they do when they are imported"
            ) from exc
        if described["threads"] > 1:
            logger.warning(
                "%s: to import them starts %d threads, which the processes that run calls will not have; "
                "start them in a call, or serve the tools by MCP",
                named,
                described["threads"] - 1,
            )
        numbers = itertools.count()
        self.by_source: list[tuple[list[Tool], list[Kind]]] = [
            (
                [self._tool(about) for about in source["tools"]],
                [self._kind(next(numbers), about) for about in source["environments"]],
            )
            for source in described["sources"]
        ]

    def _kind(self, number: int, about: dict[str, Any]) -> Kind:
        tools = [Tool(**tool, invoke=_never) for tool in about["tools"]]
        begin = functools.partial(RemoteEnvironment, self, number, about)
        return Kind(about["source"], about["rewards"], tools, begin)

    def _tool(self, about: dict[str, Any]) -> Tool:
        async def call(context: EpisodeContext, raw: str) -> ToolResult:
            async with self._process() as process:
                return await called(process, "call", about["name"], raw, context)

        return recorded(**about, work=lambda context, raw: self.run(call(context, raw)))

    async def play(self, question: Question, llm: LLMEndpoint, specs: list[dict[str, Any]]) -> str | Episode:
        """What agent.episode gives, in a process to itself. Raises Overdue, and a Fault."""
        sent = {field.name: getattr(llm, field.name) for field in fields(llm) if field.name not in NOT_SENT}
        request = {"do": "episode", "question": question.model_dump_json()}
        request |= {"llm": sent, "specs": specs, "timeout_s": self._agent.episode_timeout_s}

        async def work() -> EncodedResult | None:
            async with self._process() as process:
                return await ask_process(process, "", request)

        try:
            result = await self.run(work())
        except Died as died:
            if died.reason == "timeout":
                raise Overdue(goes_on=False) from died
            raise EpisodeFault(f"agent.episode {died}") from died
        if result is None:
            raise Overdue(goes_on=False)
        return result_of(result)

    async def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What `work` gives, which runs in the loop of the processes; cancelled with its caller."""
        if asyncio.get_running_loop() is self.loop.loop:
            return await work
        return await asyncio.wrap_future(self.loop.submit(work))

    @asynccontextmanager
    async def _process(self) -> AsyncIterator[Forked]:
        process = await self.begun()
        try:
            yield process
        finally:
            self.give_back(process)

    async def begun(self) -> Forked:
        """A process for a call or an episode, to be given back."""
        while self._idle:
            if (process := self._idle.pop()).alive:
                return process
        if self._host is None or not self._host.alive:
            await self._reopen()
        assert self._host
        process = self._unborn()
        await fork(self._host.line, process)
        self._processes = {other for other in self._processes if not other.over_now} | {process}
        return process

    def give_back(self, process: Forked) -> None:
        """It serves again, if it was left as it was and answered."""
        if process.is_clean and process.alive and self._is_open and len(self._idle) < MOST_IDLE:
            self._idle.append(process)
        else:
            process.kill()

    async def _reopen(self) -> None:
        async with self._opening:
            if self._host is None or not self._host.alive:
                try:
                    await self._begin()
                except Died as died:
                    raise ToolFault(f"the process that imports the tools {died}", reason=died.reason) from died
                except UserError as exc:
                    raise ToolFault(str(exc), reason="start") from exc

    async def _begin(self) -> dict[str, Any]:
        """Start the process that loads the sources; what they hold. Raises Died, and UserError as `load` raised it."""
        self._host = await self._nursery.run(self._unborn(), f"{HOST}:host", self._settings)
        described = await self._host.ask(None, timeout_s=START_S)
        if "error" in described:
            raise UserError(described["error"])
        return described

    def _unborn(self) -> Forked:
        return Forked(most_bytes=ANSWER_BYTES, most_printed=self._agent.tool_max_output_kib << 10, hear=_hear)

    def close(self) -> None:
        """End all processes, and wait for that."""
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(TimeoutError, concurrent.futures.CancelledError):
                self.loop.submit(self._end()).result(CLOSE_S)
            Nurseries.leave()

    async def _end(self) -> None:
        for process in [*self._processes, *([self._host] if self._host else [])]:
            process.kill()
            await process.over()


def _hear(text: str) -> None:
    logger.info("a tool or episode prints: %s", text.rstrip()[:2000])


async def _never(_context: EpisodeContext, _raw: str) -> str:
    raise AssertionError("an environment's tools are called in an episode")


async def ask_process(process: Forked, tool: str, request: dict[str, Any]) -> Any:
    """The answer of a process to a request with its limit. Raises Died, and a Fault as it was raised there."""
    process.is_clean = False
    answer = await process.ask(request, timeout_s=request["timeout_s"] + GRACE_S)
    fault, value = None, None
    try:
        if "fault" in answer:
            fault = FAULT.validate_python(answer["fault"])
        else:
            value = VALUES[request["do"]].validate_python(answer["value"])
    except (LookupError, TypeError, ValidationError):  # a call may write into the line what it likes
        process.kill("garbage", "gave an answer that cannot be read")
        raise await process.died() from None
    if fault:
        text, name, reason = fault
        kinds = {kind.kind: kind for kind in Fault.__subclasses__() if kind is not ToolFault}
        if kind := kinds.get(name):
            raise kind(text)
        raise ToolFault(text, tool=tool, reason=reason)
    process.is_clean = answer.get("clean") is True
    return value


async def called(process: Forked, do: str, name: str, raw: str, context: EpisodeContext) -> ToolResult:
    """What a call of a tool came to. Raises TimeoutError, and ToolFault where the process ended."""
    limits = {"timeout_s": context.timeout_s, "max_chars": context.max_chars, "n_turns": context.n_turns}
    try:
        return await ask_process(process, name, {"do": do, "name": name, "raw": raw, **limits})
    except Died as died:
        if died.reason == "timeout":
            raise TimeoutError from died
        raise ToolFault(str(died), reason=died.reason) from died


class RemoteEnvironment:
    """One episode's instance of an environment, which has a process to itself. Raises ToolFault where it breaks."""

    def __init__(self, owner: RemoteTools, number: int, about: dict[str, Any], timeout_s: float) -> None:
        self._owner, self._number, self._about, self._timeout_s = owner, number, about, timeout_s
        self._source: str = about["source"]
        self._process: Forked | None = None
        self._turn = asyncio.Lock()

    async def reset(self, question: Question, *, max_chars: int) -> str:
        about = {"kind": self._number, "question": question.model_dump_json(), "max_chars": max_chars}
        observation = await self._owner.run(self._ask("reset", **about))
        return bounded(ToolResult(observation), max_chars).text

    def tools(self) -> list[Tool]:
        return [self._tool(about) for about in self._about["tools"]]

    def _tool(self, about: dict[str, Any]) -> Tool:
        async def call(context: EpisodeContext, raw: str) -> ToolResult:
            process = self._living()
            async with self._turn:
                return await called(process, "method", about["name"], raw, context)

        return recorded(**about, work=lambda context, raw: self._owner.run(call(context, raw)))

    async def reward(self) -> float | None:
        return await self._owner.run(self._ask("reward")) if self._about["rewards"] else None

    async def close(self) -> None:
        if self._process:
            await self._owner.run(self._end(self._process))

    async def _end(self, process: Forked) -> None:
        with contextlib.suppress(ToolFault):
            if process.alive:
                await self._ask("close")
        self._owner.give_back(process)

    async def _ask(self, step: str, **about: Any) -> Any:
        if self._process is None:
            self._process = await self._owner.begun()
        process, name = self._living(), class_of(self._source)
        try:
            async with self._turn:
                return await ask_process(process, name, {"do": step, "timeout_s": self._timeout_s, **about})
        except Died as died:
            raise ToolFault(f"{self._source}: {step} {died}", tool=name, reason=died.reason) from died

    def _living(self) -> Forked:
        """Its process. Raises ToolFault where a call ended it."""
        assert self._process
        if not self._process.alive:
            raise ToolFault(
                f"{self._source}: its process is gone, and its state with it: it {self._process.how}",
                tool=class_of(self._source),
                reason=self._process.how.reason,
            )
        return self._process
