"""Episodes of one's own: an async function, or a foreign program, in place of the loop in episode.py.

`agent.episode` names a function (question, endpoint, tools) -> final answer, or an Episode. `agent.command` is a
program that is run for each rollout: the question as JSON on its standard input, OPENAI_BASE_URL, OPENAI_API_KEY and
OPENAI_MODEL in its environment, the answer on the last line that it prints.
Guarantees: the model is reached through the relay, which samples, counts and remembers faults; what raises, ends with
an error or takes more than agent.episode_timeout_s is a fault and never a 0; what a program printed is kept, cut in
the middle, and whatever it started, detached or not, ends with it (foundation/supervise.py). It gets neither the
reference answer nor a variable besides the usual ones and agent.command_env.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import shlex
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from foundation import supervise
from foundation.background import contained
from foundation.child import usual_environment
from foundation.errors import UserError, did_you_mean
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.relay import Relay, Session
from sql_agent.agent.tool import EpisodeContext, Tool, as_text
from sql_agent.agent.transcript import writable
from sql_agent.config import AgentConfig
from sql_agent.errors import EpisodeFault, Fault
from sql_agent.records import Episode, Question, StopReason
from sql_agent.scoring.registry import import_module

KEPT_BYTES = 20_000
POLL_S = 0.02
READ_S = 1.0  # for the rest of what it printed, where a process that escaped holds its lines open
EpisodeFunction = Callable[..., Awaitable[Any]]


@dataclass(frozen=True)
class EpisodeTool:
    """A tool within an episode of one's own: `await tool(**arguments)`, or `await tool.invoke(json_text)`."""

    tool: Tool
    context: EpisodeContext

    @property
    def name(self) -> str:
        """The name that the model calls."""
        return self.tool.name

    @property
    def spec(self) -> dict[str, Any]:
        """The tool for `tools` of a chat completion."""
        return self.tool.spec

    async def invoke(self, arguments: str) -> str:
        """What the model sees of a call with these arguments, as the model wrote them."""
        return await self.tool.invoke(self.context, arguments)

    async def __call__(self, **arguments: Any) -> str:
        return await self.invoke(json.dumps(arguments, ensure_ascii=False))


def load_episode(path: str) -> EpisodeFunction:
    """The function of agent.episode. Raises UserError."""
    where, colon, name = path.rpartition(":")
    if not colon:
        raise UserError(f"agent.episode = {path!r}: write MODULE:FUNCTION or FILE.py:FUNCTION")
    try:
        module = import_module(where)
    except Exception as exc:  # the user's own module may fail in any way
        raise UserError(f"agent.episode = {path!r}: {where!r} cannot be imported ({exc!r:.300})") from exc
    function = getattr(module, name, None)
    if not inspect.iscoroutinefunction(function):
        hint = did_you_mean(name, [n for n, value in vars(module).items() if inspect.iscoroutinefunction(value)])
        raise UserError(f"agent.episode = {path!r}: {where!r} has no async function {name!r}{hint}")
    return function


def checked_command(command: str) -> list[str]:
    """Program and arguments; `python` is the Python that runs the job. Raises UserError where it is not there."""
    try:
        program, *arguments = shlex.split(command)
    except ValueError as exc:
        raise UserError(f"agent.command = {command!r}: cannot be read ({exc}); quote it as in a shell") from exc
    found = sys.executable if program == "python" else shutil.which(program)
    if not found:
        raise UserError(f"agent.command = {command!r}: no such program {program!r}; install it, or give its path")
    return [found, *arguments]


async def play_own(
    relay: Relay,
    question: Question,
    llm: LLMEndpoint,
    context: EpisodeContext,
    *,
    config: AgentConfig,
    tools: Sequence[Tool],
) -> tuple[str, StopReason]:
    """Play with the configured function or program. Raises LLMFault, ToolFault, EpisodeFault."""
    limit_s = config.episode_timeout_s
    session = Session(llm, context, config.max_turns, config.llm_timeout_s, match=config.match)
    seen = replace(llm, base_url=relay.open(session), api_key="EMPTY", untrained_url="")
    try:
        if config.command:
            work: Awaitable[Any] = _run_command(config, question, seen, context)
        else:
            work = load_episode(config.episode)(question, seen, [EpisodeTool(tool, context) for tool in tools])
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                given = await contained(work)
        except TimeoutError as exc:
            if not limit.expired():
                raise
            raise EpisodeFault(f"the episode took more than agent.episode_timeout_s = {limit_s:g} s") from exc
    except Exception as exc:  # the user's own code may fail in any way
        given = _after_failure(session, exc)
    finally:
        relay.end(session)
    if session.fault:
        raise session.fault
    if context.fault:  # a tool's, whatever was made of it
        raise context.fault
    return _ended(given, context, session)


def _after_failure(session: Session, exc: Exception) -> str:
    """The answer of an episode that raised: none, where the policy was at its end. Raises a Fault otherwise."""
    for fault in (session.fault, session.context.fault):
        if fault:
            raise fault from exc
    if session.stop:
        return ""
    if isinstance(exc, Fault):
        raise exc
    raise EpisodeFault(f"agent.episode raised {type(exc).__name__}: {exc}"[:500]) from exc


def _ended(given: Any, context: EpisodeContext, session: Session) -> tuple[str, StopReason]:
    if isinstance(given, Episode):
        context.messages = context.messages or list(given.messages)
        context.tool_calls = context.tool_calls or list(given.tool_calls)
        answer, reason = given.final_answer, given.stop_reason
    else:
        answer, reason = "" if given is None else as_text(given), "answered"
    answer = writable(answer)
    if not answer.strip():
        return "", session.stop or ("empty_answer" if reason == "answered" else reason)
    return answer, reason


async def _run_command(config: AgentConfig, question: Question, llm: LLMEndpoint, context: EpisodeContext) -> str:
    """Run the program and return the last line it prints. Raises EpisodeFault."""
    command = config.command
    environment = {
        **usual_environment(*config.command_env),
        "OPENAI_BASE_URL": llm.base_url,
        "OPENAI_API_KEY": llm.api_key,
        "OPENAI_MODEL": llm.model,
    }
    asked = question.model_dump(include={"id", "question", "task_type", "meta"})
    pipe = asyncio.subprocess.PIPE
    try:
        supervised = [sys.executable, "-I", "-S", supervise.__file__, str(os.getpid()), *checked_command(command)]
        process = await asyncio.create_subprocess_exec(
            *supervised, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, start_new_session=True
        )
    except (OSError, ValueError, UserError) as exc:
        raise EpisodeFault(f"agent.command = {command!r} cannot be started: {exc}") from exc
    assert process.stdin and process.stdout and process.stderr
    printed = _Kept(), _Kept()
    reading = [
        asyncio.create_task(kept.read(stream))
        for kept, stream in zip(printed, (process.stdout, process.stderr), strict=True)
    ]
    try:
        with contextlib.suppress(ConnectionError):
            process.stdin.write(json.dumps(asked, ensure_ascii=False).encode() + b"\n")
            await process.stdin.drain()
        process.stdin.close()
        # Not wait(), which waits until its children have closed the lines too.
        while (status := process.returncode) is None:
            await asyncio.sleep(POLL_S)
    finally:
        if process.returncode is None:
            process.terminate()
        _, escaped = await asyncio.wait(reading, timeout=supervise.ENDING_S + READ_S)
        for task in escaped:
            task.cancel()
        if not escaped:
            await process.wait()
    context.output = "\n".join(part for part in (printed[0].text, printed[1].text) if part)
    if status:
        raise EpisodeFault(f"agent.command ended with status {status}: {printed[1].text[-300:] or 'it said nothing'}")
    lines = [line for line in printed[0].text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


class _Kept:
    """The beginning and the end of what a program prints."""

    def __init__(self) -> None:
        self._head, self._tail, self._n = bytearray(), bytearray(), 0

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Read to the end."""
        while chunk := await stream.read(1 << 16):
            self._n += len(chunk)
            room = KEPT_BYTES // 2 - len(self._head)
            self._head += chunk[:room]
            self._tail = (self._tail + chunk[max(0, room) :])[-(KEPT_BYTES // 2) :]

    @property
    def text(self) -> str:
        """What was kept."""
        left_out = self._n - len(self._head) - len(self._tail)
        middle = f"\n… {left_out} bytes left out …\n".encode() if left_out else b""
        return (bytes(self._head) + middle + bytes(self._tail)).decode("utf-8", "replace")
