"""The function of agent.episode, as whoever runs it has it: how it is found, its tools, and what it gives.

The function gets (question, endpoint, tools) and gives the final answer, or an Episode. It runs where own tools run: in
a process of its own for each episode (own_remote.py, own_child.py).
Guarantees: its tools are called through the relay, from any process and loop, and are the run's own.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar

from foundation.background import contained_call
from foundation.errors import UserError, did_you_mean
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.tool import as_text
from sql_agent.errors import Fault, ToolFault
from sql_agent.records import Episode, Question
from sql_agent.scoring.registry import import_module

EpisodeFunction = Callable[..., Awaitable[Any]]
EncodedResult = tuple[str, bool]  # the answer; or an Episode as JSON, and True
_LINE: ContextVar[tuple[asyncio.AbstractEventLoop, ClientSession]] = ContextVar("episode's line to the relay")


@dataclass(frozen=True)
class EpisodeTool:
    """A tool within an episode of one's own: `await tool(**arguments)`, or `await tool.invoke(json_text)`.

    `spec` is the tool for `tools` of a chat completion.
    """

    spec: dict[str, Any]
    url: str

    @property
    def name(self) -> str:
        return self.spec["function"]["name"]

    async def invoke(self, arguments: str) -> str:
        """What the model sees of a call with these arguments, as the model wrote them. Raises ToolFault."""
        async with _client() as client, client.post(self.url, json={"arguments": arguments}) as reply:
            answer = await reply.json()
        if reply.status != 200:
            raise ToolFault(answer["error"]["message"])
        return answer["text"]

    async def __call__(self, **arguments: Any) -> str:
        return await self.invoke(json.dumps(arguments, ensure_ascii=False))


@asynccontextmanager
async def _client() -> AsyncIterator[ClientSession]:
    """The episode's client in the loop that it belongs to, elsewhere a new one, which costs a millisecond more."""
    loop, client = _LINE.get((None, None))
    if client and loop is asyncio.get_running_loop() and not client.closed:
        yield client
        return
    async with ClientSession(timeout=ClientTimeout(), cookie_jar=DummyCookieJar()) as client:
        yield client


def load_episode(path: str) -> EpisodeFunction:
    """The function of agent.episode. Raises UserError."""
    where, colon, name = path.rpartition(":")
    if not colon:
        raise UserError(f"agent.episode = {path!r}: write MODULE:FUNCTION or FILE.py:FUNCTION")
    try:
        module = contained_call(import_module, where)
    except Exception as exc:  # the user's own module may fail in any way
        raise UserError(f"agent.episode = {path!r}: {where!r} cannot be imported ({exc!r:.300})") from exc
    function = getattr(module, name, None)
    if not inspect.iscoroutinefunction(function):
        hint = did_you_mean(name, [n for n, value in vars(module).items() if inspect.iscoroutinefunction(value)])
        raise UserError(f"agent.episode = {path!r}: {where!r} has no async function {name!r}{hint}")
    return function


async def played(
    function: EpisodeFunction, question: Question, llm: LLMEndpoint, specs: list[dict[str, Any]]
) -> EncodedResult | Fault:
    """What the function gives. A Fault that it raises is given too: what is raised is then no word of its own."""
    address = llm.base_url.removesuffix("/v1")
    tools = [EpisodeTool(spec, f"{address}/tools/{spec['function']['name']}") for spec in specs]
    async with _client() as client:
        _LINE.set((asyncio.get_running_loop(), client))
        try:
            result = await function(question, llm, tools)
        except Fault as fault:
            return fault
    if isinstance(result, Episode):
        return result.model_dump_json(), True
    return "" if result is None else as_text(result), False


def result_of(encoded: EncodedResult) -> str | Episode:
    text, is_whole = encoded
    return Episode.model_validate_json(text) if is_whole else text
