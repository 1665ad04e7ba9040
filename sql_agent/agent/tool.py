"""What a tool is to an episode: a name, a schema, and a call that is bounded in time and size and written down.

Guarantees: whatever a tool does - raises, hangs or returns a megabyte - the model gets
text of at most `max_chars` characters within `timeout_s`, and the call is recorded with how it ended. Only a Fault ends
the episode: it says that the tool itself is broken, which is nobody's mistake and never a 0.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Protocol

from pydantic import BaseModel

from foundation.background import Exited
from foundation.errors import AgentGRPOError
from foundation.files import writable
from foundation.marks import Marks
from sql_agent.errors import Fault, ToolFault
from sql_agent.records import LlmCall, Moment, Question, SqlCall, ToolCall, ToolOutcome

MAX_ARGUMENT_CHARS = 20_000  # of a recorded call
ERROR_CHARS = 500
NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


class BadArguments(AgentGRPOError):
    """The model's arguments do not fit the tool. The text is for the model."""


class ToolFailed(AgentGRPOError):
    """The tool did not do it, and says why. The text is for the model."""

    def __init__(self, text: str, outcome: ToolOutcome = "error") -> None:
        super().__init__(text)
        self.outcome: ToolOutcome = outcome


@dataclass(frozen=True)
class ToolResult:
    """What a call came to: the text for the model, and how the call ended."""

    text: str
    outcome: ToolOutcome = "ok"


@dataclass
class EpisodeContext:
    """What one episode shares with its tools, with the fields of Played; `max_chars` bounds a tool's answer.

    `asked` holds what was called, in order: equal entries are the same call. `asked_s` is when the LLM was last asked.
    `logprobs` has one of each LLM call, None where it was not told. `reward` is what an agent of its own said that it
    earned, in [0, 1].
    """

    max_chars: int = 1000
    timeout_s: float = 30.0
    repeat_limit: int = 3
    sql_calls: list[SqlCall] = field(default_factory=list)
    tool_calls: list[ToolCall] = field(default_factory=list)
    call_keys: list[tuple[str, ...]] = field(default_factory=list)
    n_turns: int = 0
    n_bad_tool_calls: int = 0
    llm_calls: list[LlmCall] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    timeline: list[Moment] = field(default_factory=list)
    asked_s: float = 0.0
    n_untrained_calls: int = 0
    output: str = ""
    logprobs: list[float | None] = field(default_factory=list)
    fault: Fault | None = None
    reward: float | None = None

    @property
    def logprob(self) -> float | None:
        """The log-probability of all calls together; None where one of them, or every one, was not told."""
        known = [logprob for logprob in self.logprobs if logprob is not None]
        return sum(known) if known and len(known) == len(self.logprobs) else None

    def answered(self, asked_s: float, *, prompt_tokens: int | None, completion_tokens: int | None) -> None:
        """Write a turn down: an LLM call, asked then and answered now. 0 tokens: not told, and therefore unknown."""
        now = time.time()
        tokens = {"prompt_tokens": prompt_tokens or None, "completion_tokens": completion_tokens or None}
        self.n_turns += 1
        self.llm_calls.append(LlmCall(elapsed_s=round(now - asked_s, 4), **tokens))
        self.timeline.append(("generation", asked_s, now))


Invoke = Callable[[EpisodeContext, str], Coroutine[Any, Any, str]]
Work = Callable[[EpisodeContext, str], Awaitable[Any]]


@dataclass(frozen=True)
class Tool:
    """A tool that a model can call. `parameters` is a JSON schema; `invoke` gets the arguments as the model wrote them.

    `invoke` gives text for the model and raises a Fault only, which it leaves in the context too.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    invoke: Invoke
    strict: bool = False

    @property
    def spec(self) -> dict[str, Any]:
        """The tool as OpenAI's API and chat templates have it."""
        about = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": about}


class Environment(Protocol):
    """One episode's instance of an environment. Its methods raise ToolFault where the instance breaks."""

    async def reset(self, question: Question, *, max_chars: int) -> str:
        """Begin it; what it says beside the question, cut."""
        ...

    def tools(self) -> list[Tool]:
        """The methods that the model can call."""
        ...

    async def reward(self) -> float | None:
        """What the episode earned in [0, 1]; None where the environment gives no reward."""

    async def close(self) -> None:
        """Let it go, also after a fault."""


@dataclass(frozen=True)
class Kind:
    """A class of environments. `tools` are for the model to be told; `begin` makes an episode's instance, each of whose
    calls may take so many seconds."""

    source: str
    rewards: bool
    tools: list[Tool]
    begin: Callable[[float], Environment]


def with_real_arguments(tool: Tool, marks: Marks) -> Tool:
    """The tool, called with the real texts where the model was shown marks in place of control tokens."""
    return replace(tool, invoke=lambda context, raw: tool.invoke(context, marks.arguments(raw)))


def is_repeated_call(context: EpisodeContext) -> bool:
    """True when the last `repeat_limit` calls were the same one."""
    last = context.call_keys[-context.repeat_limit :]
    return len(last) == context.repeat_limit and len(set(last)) == 1


def recorded(name: str, description: str, parameters: dict[str, Any], work: Work, *, strict: bool = False) -> Tool:
    """The tool whose calls `work` does; each is written down, and a Fault that ends it is left in the context.

    `work` gives text or what json can write, or what a call in another process came to, and raises BadArguments,
    ToolFailed, TimeoutError or anything else.
    """

    async def invoke(context: EpisodeContext, raw: str) -> str:
        started = time.time()
        observation = bounded(await _result_of(context, name, work(context, raw)), context.max_chars)
        outcome, text = observation.outcome, observation.text
        context.n_bad_tool_calls += outcome == "bad_arguments"
        ended = time.time()
        context.timeline.append(("tool", started, ended))
        turn = max(1, context.n_turns)
        elapsed_s = round(ended - started, 4)
        written = writable(raw[:MAX_ARGUMENT_CHARS])
        call = ToolCall(name=name, arguments=written, result=text, outcome=outcome, turn=turn, elapsed_s=elapsed_s)
        context.tool_calls.append(call)
        # With its result: the next page of a list is another answer to the same words.
        context.call_keys.append((name, " ".join(raw.split()), text))
        return text

    return Tool(name, description, parameters, invoke, strict)


async def _result_of(context: EpisodeContext, name: str, work: Awaitable[Any]) -> ToolResult:
    """Await a tool's work; an error of the tool becomes text for the model. Raises a Fault, noted in `context`."""
    try:
        value = await work
        return value if isinstance(value, ToolResult) else ToolResult(as_text(value))
    except Fault as fault:
        context.fault = _of_tool(fault, name)
        raise context.fault from fault
    except BadArguments as exc:
        return ToolResult(f"error: {exc}"[:ERROR_CHARS], "bad_arguments")
    except ToolFailed as exc:
        return ToolResult(f"error: {exc}", exc.outcome)
    except TimeoutError as exc:
        return ToolResult(f"error: {str(exc) or f'{name} gave no answer within {context.timeout_s:g} s'}", "timeout")
    except Exception as exc:  # the user's own tool may fail in any way, and the model may try another way
        return ToolResult(f"error: {said_by(exc)}"[:ERROR_CHARS], "error")


def _of_tool(fault: Fault, name: str) -> Fault:
    if not isinstance(fault, ToolFault) or fault.tool:
        return fault
    return ToolFault(f"{name}: {fault}", tool=name, reason=fault.reason)


def said_by(exc: Exception) -> str:
    """Name and words of what a tool raised, also where the words cannot be had."""
    if isinstance(exc, Exited):
        return str(exc)
    try:
        return f"{type(exc).__name__}: {exc}"
    except BaseException:  # its arguments may be anything
        return type(exc).__name__


def bounded(result: ToolResult, max_chars: int) -> ToolResult:
    """What is told, as text that can be written, of at most `max_chars` characters."""
    is_cut = len(result.text) > max_chars and result.outcome == "ok"
    return ToolResult(writable(cut(result.text, max_chars)), "cut" if is_cut else result.outcome)


def as_text(value: Any) -> str:
    """What a tool gave, as text: JSON unless it is text already, of models and dataclasses their fields. NaN and the
    infinities, which JSON lacks, are null."""
    if isinstance(value, str):
        return str.__str__(value)
    dumps = functools.partial(json.dumps, ensure_ascii=False, default=_fields_of)
    try:
        return dumps(value, allow_nan=False)
    except ValueError:
        return dumps(json.loads(dumps(value), parse_constant=lambda _: None))


def _fields_of(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if is_dataclass(value) and not isinstance(value, type):
        return {part.name: getattr(value, part.name) for part in fields(value)}
    return str(value)


def cut(text: str, max_chars: int) -> str:
    """The text, where it is longer its first characters and how many there were: at most `max_chars`."""
    if len(text) <= max_chars:
        return text
    note = f"… ({len(text)} characters, cut)"
    return text[: max(0, max_chars - len(note))] + note


def parse_object(raw: str) -> dict[str, Any]:
    """The arguments of a call. Raises BadArguments unless they are a JSON object; none at all are an empty one."""
    try:
        arguments = json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError) as exc:
        raise BadArguments("the arguments are not valid JSON; give an object") from exc
    if not isinstance(arguments, dict):
        raise BadArguments(f"the arguments are a {type(arguments).__name__}; give an object")
    return arguments
