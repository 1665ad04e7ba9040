"""The function of agent.episode, as whoever runs it has it: how it is found, its tools, and what it gives.

The function gets (question, endpoint, tools) and gives the final answer, or an Episode. It runs where own tools run: in
a process of its own for each episode (own_remote.py, own_child.py), or with agent.tools_in_process beside other work.
Guarantees: its tools are called through the relay, from any process and loop, and are the run's own.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx2

from foundation.background import contained_call
from foundation.errors import UserError, did_you_mean
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.tool import as_text
from sql_agent.errors import Fault, ToolFault
from sql_agent.records import Episode, Question
from sql_agent.scoring.registry import import_module

EpisodeFunction = Callable[..., Awaitable[Any]]
Given = tuple[str, bool]  # the answer; or an Episode as JSON, and True


@dataclass(frozen=True)
class EpisodeTool:
    """A tool within an episode of one's own: `await tool(**arguments)`, or `await tool.invoke(json_text)`.

    `spec` is the tool for `tools` of a chat completion.
    """

    spec: dict[str, Any]
    url: str

    @property
    def name(self) -> str:
        """The name that the model calls."""
        return self.spec["function"]["name"]

    async def invoke(self, arguments: str) -> str:
        """What the model sees of a call with these arguments, as the model wrote them. Raises ToolFault."""
        async with httpx2.AsyncClient(timeout=None, trust_env=False, verify=False) as client:  # nothing is encrypted
            reply = await client.post(self.url, content=json.dumps({"arguments": arguments}).encode())
        if reply.status_code != 200:
            raise ToolFault(reply.json()["error"]["message"])
        return reply.json()["text"]

    async def __call__(self, **arguments: Any) -> str:
        return await self.invoke(json.dumps(arguments, ensure_ascii=False))


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
) -> Given | Fault:
    """What the function gives. A Fault that it raises is given too: what is raised is then no word of its own."""
    address = llm.base_url.removesuffix("/v1")
    tools = [EpisodeTool(spec, f"{address}/tools/{spec['function']['name']}") for spec in specs]
    try:
        given = await function(question, llm, tools)
    except Fault as fault:
        return fault
    if isinstance(given, Episode):
        return given.model_dump_json(), True
    return "" if given is None else as_text(given), False
