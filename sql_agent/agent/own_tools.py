"""Tools of one's own: typed functions, and environments, classes that are made anew for each episode.

A source is a module or .py file, or MODULE:NAME. Of a module its FunctionTools and public functions are tools, and its
classes with a `reset` method environments. An environment's `reset(question)` begins the episode (text that it returns
is put after the question), its other public methods are tools, `reward()`, where there is one, grades the episode with
a number in [0, 1], and `close()` ends it. Types and docstrings make the schema, by openai-agents' own reading.
Guarantees: what cannot be a tool is a UserError that names it, before the run; an environment that breaks, and a call
that would end its process, are ToolFaults. Where calls run is a Worker's affair (own_child.py).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import MethodType
from typing import Any, Protocol

from agents import FunctionTool, RunContextWrapper
from agents.exceptions import UserError as AgentsUserError
from agents.function_schema import FuncSchema, function_schema
from agents.tool_context import ToolContext
from pydantic import ValidationError
from pydantic.errors import PydanticUserError

from foundation.background import contained_call, named
from foundation.errors import UserError, did_you_mean, problems_of
from sql_agent.agent.tool import (
    NAME,
    BadArguments,
    EpisodeContext,
    Kind,
    Tool,
    ToolResult,
    as_text,
    bounded,
    parse_object,
    recorded,
    said_by,
)
from sql_agent.errors import ToolFault
from sql_agent.records import Question
from sql_agent.scoring.registry import import_module
from sql_agent.scoring.values import number_of

logger = logging.getLogger(__name__)
NOT_TOOLS = ("reset", "reward", "close")


class Worker(Protocol):
    """Where tools run."""

    async def call(self, function: Callable[..., Any], *args: Any, timeout_s: float, **kwargs: Any) -> Any:
        """What a function gives, sync or async. Raises what it raises, TimeoutError, and ToolFault where it exits."""


def checked_result(value: Any) -> Any:
    """A function's result as it is. Raises ToolFault for an iterator, whose values are still to come."""
    if isinstance(value, Iterator | AsyncIterator):
        raise ToolFault(f"returned a {type(value).__name__}, which is no result; return a list or text")
    return value


def load(source: str, worker: Worker) -> tuple[list[Tool], list[Kind]]:
    """The tools and environments of a source. Raises UserError."""
    where, _, name = source.partition(":") if not source.endswith(".py") else (source, "", "")
    try:
        module = contained_call(import_module, where)
    except Exception as exc:  # the user's own module may fail in any way
        raise _unusable(source, f" cannot be imported ({exc!r:.300}). {_remedy(where, exc)}") from exc
    members = _members(module)
    if name:
        if name not in members and not callable(getattr(module, name, None)):
            raise _unusable(source, f": {where!r} has no tool {name!r}{did_you_mean(name, members)}")
        members = {name: getattr(module, name)}
    classes = [member for member in members.values() if inspect.isclass(member)]
    tools = [_tool(source, member, worker) for member in members.values() if not inspect.isclass(member)]
    if not tools and not classes:
        raise _unusable(source, " has no public function, no FunctionTool and no class with a reset method")
    return tools, [_environment(source, cls, worker) for cls in classes]


def _unusable(source: str, why: str) -> UserError:
    return UserError(f"agent.tools: {source!r}{why}")


def _remedy(where: str, exc: Exception) -> str:
    """What helps against an import that failed: mend the line, where the file is there; else name another source."""
    own = Path(where).name if where.endswith(".py") else ""
    lines = [frame.lineno for frame in traceback.extract_tb(exc.__traceback__) if Path(frame.filename).name == own]
    if not lines:
        return "Give sql, schema, python, an installed module, or a .py file"
    if isinstance(exc, FileNotFoundError) and isinstance(exc.filename, str) and not Path(exc.filename).is_absolute():
        beside = f"Path(__file__).parent / {exc.filename!r}"
        return f"Line {lines[-1]} opens {exc.filename!r}; a file beside it is {beside}, whatever folder a run starts in"
    return f"Mend line {lines[-1]} of it"


def _members(module: Any) -> dict[str, Any]:
    """What of a module is a tool or an environment: what it defines itself, and FunctionTools."""

    def is_meant(value: Any) -> bool:
        if isinstance(value, FunctionTool):
            return True
        is_kind = inspect.isfunction(value) or (inspect.isclass(value) and hasattr(value, "reset"))
        return is_kind and value.__module__ == module.__name__

    return {name: value for name, value in vars(module).items() if not name.startswith("_") and is_meant(value)}


def _schema(source: str, function: Callable[..., Any], *, name: str) -> FuncSchema:
    _check_name(source, name)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise _unusable(source, f": {name} is a generator, which gives no result; return a list or text")
    parameters = inspect.signature(function).parameters.values()
    if untyped := [parameter.name for parameter in parameters if parameter.annotation is inspect.Parameter.empty]:
        why = f": {name}: the parameter {untyped[0]!r} has no type, and the model is told types. "
        raise _unusable(source, f"{why}Write {untyped[0]}: str, for example, or call it _{name} where it is no tool")
    try:
        return function_schema(function, name_override=name, strict_json_schema=False)
    except (AgentsUserError, PydanticUserError, NameError, TypeError) as exc:
        raise _unusable(source, f": {name}: no schema can be made of its types ({exc!s:.300})") from exc


def _check_name(source: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise _unusable(source, f": {name!r} is no name for a tool; use letters, digits, '_' and '-'")


def _tool(source: str, value: Any, worker: Worker) -> Tool:
    if isinstance(value, FunctionTool):
        _check_name(source, value.name)

        async def call_given(context: EpisodeContext, raw: str) -> Any:
            parse_object(raw)
            call = ToolContext(context=context, tool_name=value.name, tool_call_id="", tool_arguments=raw)
            return await _text(worker, context, value.on_invoke_tool, call, raw)

        return recorded(value.name, value.description or "", value.params_json_schema, call_given)
    name = getattr(value, "__name__", source.rpartition(":")[2])
    schema = _schema(source, value, name=name)
    call = functools.partial(_call, worker, value, schema)
    return recorded(name, schema.description or "", schema.params_json_schema, call)


async def _call(
    worker: Worker, function: Callable[..., Any], schema: FuncSchema, context: EpisodeContext, raw: str
) -> str:
    try:
        parsed = schema.params_pydantic_model(**parse_object(raw))
    except ValidationError as exc:
        raise BadArguments(problems_of(exc, most=3, whole="arguments")) from exc
    args, kwargs = schema.to_call_args(parsed)
    if schema.takes_context:
        args = [RunContextWrapper(context), *args]
    return await _text(worker, context, function, *args, **kwargs)


async def _text(
    worker: Worker, context: EpisodeContext, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> str:
    """What a function gives, as text. Its result is the user's code too: it is asked for its text where that runs."""
    value = await worker.call(function, *args, timeout_s=context.timeout_s, **kwargs)
    return value if type(value) is str else await worker.call(as_text, value, timeout_s=context.timeout_s)


def _environment(source: str, cls: type, worker: Worker) -> Kind:
    methods = {
        name: method
        for name, method in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_") and name not in NOT_TOOLS
    }
    if not methods:
        raise _unusable(source, f": {cls.__name__} has reset, but no other public method to be a tool")
    # Bound to anything, so that `self` is no parameter of the schema.
    schemas = {name: _schema(source, MethodType(method, cls), name=name) for name, method in methods.items()}
    name = source if ":" in source else f"{source}:{cls.__name__}"
    begin = functools.partial(LocalEnvironment, name, cls, schemas, worker)
    return Kind(name, hasattr(cls, "reward"), _tools_of(schemas, worker), begin)


def class_of(source: str) -> str:
    """The name by which an environment is counted."""
    return source.rpartition(":")[2]


class LocalEnvironment:
    """One episode's instance of an environment. Raises ToolFault where the instance breaks."""

    def __init__(
        self, source: str, make: Callable[[], Any], schemas: dict[str, FuncSchema], worker: Worker, timeout_s: float
    ) -> None:
        self._source, self._make, self._schemas, self._worker = source, make, schemas, worker
        self._timeout_s = timeout_s
        self._instance: Any = None

    async def reset(self, question: Question, *, max_chars: int) -> str:
        """Make and begin it; what it says beside the question."""
        self._instance = await self._guard("made", self._make)
        observation = await self._guard("reset", self._instance.reset, question)
        if observation is None:
            return ""
        return bounded(ToolResult(await self._guard("reset", str, observation)), max_chars).text

    def tools(self) -> list[Tool]:
        return _tools_of(self._schemas, self._worker, self._instance)

    async def reward(self) -> float | None:
        if not hasattr(self._instance, "reward"):
            return None
        value = await self._guard("reward", self._instance.reward)
        number = await self._guard("reward", number_of, value)
        if number is not None and 0 <= number <= 1:
            return number
        raise ToolFault(
            f"{self._source}: reward() gave {named(value):.100}; it must give a number from 0 to 1",
            tool=class_of(self._source),
            reason="reward",
        )

    async def close(self) -> None:
        if hasattr(self._instance, "close"):
            with contextlib.suppress(ToolFault):
                await self._guard("close", self._instance.close)

    async def _guard(self, step: str, function: Callable[..., Any], *args: Any) -> Any:
        source, tool = self._source, class_of(self._source)
        try:
            return await self._worker.call(function, *args, timeout_s=self._timeout_s)
        except ToolFault as fault:
            raise ToolFault(f"{source}: {step} {fault}", tool=tool, reason=fault.reason) from fault
        except TimeoutError as exc:
            raise ToolFault(
                f"{source}: {step} took more than {self._timeout_s:g} s", tool=tool, reason="timeout"
            ) from exc
        except Exception as exc:  # the user's own class may fail in any way
            logger.warning("environment %s: %s failed", source, step, exc_info=True)
            reason = said_by(exc)
            raise ToolFault(f"{source}: {step} raised {reason}"[:500], tool=tool, reason="raised") from exc


def _tools_of(schemas: dict[str, FuncSchema], worker: Worker, instance: Any = None) -> list[Tool]:
    """The methods of `instance` as tools; without one, what the model will be told of them."""

    def made(name: str, schema: FuncSchema) -> Tool:
        async def call(context: EpisodeContext, raw: str) -> Any:
            assert instance is not None, "an environment's tools are called in an episode"
            return await _call(worker, getattr(instance, name), schema, context, raw)

        return recorded(name, schema.description or "", schema.params_json_schema, call)

    return [made(name, schema) for name, schema in schemas.items()]
