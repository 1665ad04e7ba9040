"""Where a process runs own tools and episodes itself (agent.tools_in_process): a loop for coroutines, else a thread.

Guarantees: a caller waits no longer than its limit; what a call raises, SystemExit too, ends neither loop nor process.
Not covered: memory, the process's own state, what a call that hangs goes on to do, and coroutines that block, which
hold up the other coroutines of that loop. Tools in processes of their own have none of that (own_remote.py).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any

from foundation.background import Exited, LoopThread, answer, contained, in_thread, within
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.own_function import load_episode, played, result_of
from sql_agent.agent.own_tools import checked_result, load
from sql_agent.config import AgentConfig
from sql_agent.errors import Fault, ToolFault
from sql_agent.records import Episode, Question

MAX_HANGING = 64


class Threads:
    """The Worker of a process that runs tools beside its other work."""

    def __init__(self, loop: LoopThread) -> None:
        self._loop = loop
        self._hanging = 0

    async def call(self, function: Callable[..., Any], *args: Any, timeout_s: float, **kwargs: Any) -> Any:
        """What a function gives, sync or async. Raises TimeoutError; ToolFault when too many calls hang already."""
        try:
            if inspect.iscoroutinefunction(function):
                return checked_result(await self._loop.call(function(*args, **kwargs), timeout_s=timeout_s))
            value = await self._in_thread(functools.partial(function, *args, **kwargs), timeout_s)
            if inspect.isawaitable(value):
                value = await self._loop.call(asyncio.wait_for(value, None), timeout_s=timeout_s)
            return checked_result(value)
        except Exited as exc:
            if isinstance(exc.__cause__, Exception):
                raise
            raise ToolFault(f"raised {exc}", reason="exit") from exc

    async def _in_thread(self, function: Callable[[], Any], timeout_s: float) -> Any:
        if self._hanging >= MAX_HANGING:
            raise ToolFault(
                f"{self._hanging} calls of tools are over their time and never ended; mend what hangs", reason="timeout"
            )
        future = in_thread(function)
        try:
            return await answer(future, timeout_s=timeout_s)
        except TimeoutError:
            self._hanging += 1
            future.add_done_callback(self._ended)
            raise

    def _ended(self, _future: Any) -> None:
        self._hanging -= 1


class ThreadTools:
    """The sources of one agent, loaded into this process. Raises UserError."""

    def __init__(self, sources: list[str], agent: AgentConfig, loop: LoopThread) -> None:
        self._agent = agent
        self._loop = loop
        worker = Threads(loop)
        self._episode = load_episode(agent.episode) if agent.episode else None
        self.by_source = [load(source, worker) for source in sources]

    async def play(self, question: Question, llm: LLMEndpoint, specs: list[dict[str, Any]]) -> str | Episode:
        """What agent.episode gives, in the loop of the tools. Raises Overdue, a Fault, and what the function raises."""
        assert self._episode
        work = contained(played(self._episode, question, llm, specs))
        result = await asyncio.wrap_future(self._loop.submit(within(work, limit_s=self._agent.episode_timeout_s)))
        if isinstance(result, Fault):
            raise result
        return result_of(result)

    def close(self) -> None:
        """Nothing is open; a call that hangs is left alone."""
