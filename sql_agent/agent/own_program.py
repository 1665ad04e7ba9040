"""Programs that play an episode, started for each rollout: agent.command, and agent.agl_class of agent-lightning 1.0.

A command gets the question as JSON on its standard input, OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL in its
environment, and gives the answer on the last line that it prints. A class of agent-lightning 1.0 gets what its
controller gives: AGL_OPENAI_BASE_URL, AGL_EVENT_URL, AGL_KEY and the variables of agent.env_map. Its answer is the last
that the model said, its reward the last event `reward` that it posted.
Guarantees: what ends with an error is a fault; what a program printed is kept, cut in the middle, and whatever it
started, detached or not, ends with it (foundation/supervise.py). It gets no variable besides the usual ones,
agent.command_env and those, and nothing of the reference but what agent.env_map names.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foundation import supervise
from foundation.child import usual_environment
from foundation.errors import UserError
from sql_agent.agent import agl_class
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.tool import EpisodeContext
from sql_agent.config import AgentConfig
from sql_agent.errors import EpisodeFault
from sql_agent.records import Question

KEPT_BYTES = 20_000
POLL_S = 0.02
PROGRAM_S = supervise.ENDING_S + 2.0  # for a program to end, with all that it started
READ_S = 1.0  # for the rest of what it printed, where a process that escaped holds its lines open
INPUT = "input"  # in agent.env_map: the question's row


def checked_command(command: str) -> list[str]:
    """Program and arguments; `python` is the Python that runs the job. Raises UserError where it is not there."""
    try:
        program, *arguments = shlex.split(command)
    except ValueError as exc:
        raise UserError(f"agent.command = {command!r}: cannot be read ({exc}); quote it as in a shell") from exc
    return [_program("agent.command", command, program), *arguments]


def _program(key: str, value: str, program: str) -> str:
    path = sys.executable if program == "python" else shutil.which(program)
    if not path:
        raise UserError(f"{key} = {value!r}: no such program {program!r}; install it, or give its path")
    return path


def _agl_arguments(config: AgentConfig) -> list[str]:
    """The Python, the script that makes and runs the class, and the class. Raises UserError."""
    python = _program("agent.agl_python", config.agl_python, config.agl_python)
    where, _, name = config.agl_class.rpartition(":")
    if not where or (where.endswith(".py") and not Path(where).is_file()):
        why = f"there is no file {where}" if where else "it names no class"
        raise UserError(f"agent.agl_class = {config.agl_class!r}: {why}; write MODULE:CLASS or FILE.py:CLASS")
    return [python, agl_class.__file__, where, name]


def program_of(config: AgentConfig) -> list[str]:
    """Program and arguments of agent.command or agent.agl_class. Raises UserError for what cannot work."""
    return checked_command(config.command) if config.command else _agl_arguments(config)


async def run_program(
    config: AgentConfig, question: Question, llm: LLMEndpoint, context: EpisodeContext, addresses: Mapping[str, str]
) -> str:
    """Run agent.command, or agent.agl_class with its `addresses`; its answer. Raises EpisodeFault."""
    try:
        arguments = program_of(config)
        variables = {name: _of_row(question, name, value) for name, value in config.env_map.items()}
    except UserError as exc:
        raise EpisodeFault(str(exc)) from exc
    if config.command:
        variables = {"OPENAI_BASE_URL": llm.base_url, "OPENAI_API_KEY": llm.api_key, "OPENAI_MODEL": llm.model}
        row = question.model_dump(include={"id", "question", "task_type", "meta"})
        key, stdin = "agent.command", json.dumps(row, ensure_ascii=False).encode() + b"\n"
    else:
        variables |= {**addresses, "AGL_KEY": llm.api_key}
        key, stdin = "agent.agl_class", b""
    environment = usual_environment(*config.command_env) | variables
    printed = await _run(key, arguments, environment=environment, stdin=stdin, context=context)
    if config.command:
        return next((line for line in reversed(printed.splitlines()) if line.strip()), "")
    return str(context.messages[-1].get("content") or "") if context.messages else ""


def _of_row(question: Question, name: str, value: str) -> str:
    """A variable of agent.env_map: text as it is; `input.KEY.KEY` from the question's row, or its `meta`."""
    first, *keys = value.split(".")
    if first != INPUT or (not keys and value != INPUT):
        return value
    branch: Any = question.meta | question.model_dump()
    for key in keys:
        try:
            branch = branch[int(key) if isinstance(branch, list) else key]
        except (LookupError, TypeError, ValueError):
            raise UserError(f"agent.env_map.{name} = {value!r}: question {question.id} has no {key!r}") from None
    return branch if isinstance(branch, str) else json.dumps(branch, ensure_ascii=False)


async def _run(
    key: str, arguments: Sequence[str], *, environment: Mapping[str, str], stdin: bytes, context: EpisodeContext
) -> str:
    """Run a program to its end; what it printed. Raises EpisodeFault."""
    pipe = asyncio.subprocess.PIPE
    try:
        command = supervise.supervised(*arguments)
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, start_new_session=True
        )
    except (OSError, ValueError) as exc:
        raise EpisodeFault(f"{key}: {arguments[0]!r} cannot be started: {exc}") from exc
    assert process.stdin and process.stdout and process.stderr
    printed = _Kept(), _Kept()
    reading = [
        asyncio.create_task(output.read(stream))
        for output, stream in zip(printed, (process.stdout, process.stderr), strict=True)
    ]
    try:
        with contextlib.suppress(ConnectionError):
            process.stdin.write(stdin)
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
        raise EpisodeFault(f"{key} ended with status {status}: {printed[1].text[-300:] or 'it said nothing'}")
    return printed[0].text


class _Kept:
    """The beginning and the end of what a program prints."""

    def __init__(self) -> None:
        self._head, self._tail, self._n = bytearray(), bytearray(), 0

    async def read(self, stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(1 << 16):
            self._n += len(chunk)
            room = KEPT_BYTES // 2 - len(self._head)
            self._head += chunk[:room]
            self._tail = (self._tail + chunk[max(0, room) :])[-(KEPT_BYTES // 2) :]

    @property
    def text(self) -> str:
        left_out = self._n - len(self._head) - len(self._tail)
        middle = f"\n… {left_out} bytes left out …\n".encode() if left_out else b""
        return (bytes(self._head) + middle + bytes(self._tail)).decode("utf-8", "replace")
