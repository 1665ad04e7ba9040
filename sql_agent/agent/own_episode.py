"""Episodes of one's own: an async function, or a foreign program, in place of the loop in episode.py.

`agent.episode` names a function (question, endpoint, tools) -> final answer, or an Episode; for `agent.command` and
`agent.agl_class` see own_program.py.
Guarantees: the model is reached through the relay, which samples, counts and remembers faults; what raises, ends with
an error or takes more than agent.episode_timeout_s is a fault and never a 0; what comes after that limit is nothing.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from foundation.background import ENDING_S, Overdue, contained, within
from foundation.errors import UserError, did_you_mean
from foundation.marks import NO_MARKS
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.own_program import PROGRAM_S, run_agl_class, run_command
from sql_agent.agent.relay import Relay, Session
from sql_agent.agent.tool import EpisodeContext, Tool, as_text
from sql_agent.agent.transcript import writable
from sql_agent.config import AgentConfig
from sql_agent.errors import EpisodeFault, Fault
from sql_agent.records import Episode, Question, StopReason
from sql_agent.scoring.registry import import_module

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
    # The relay hides the model's control tokens, and shows them again.
    seen = replace(llm, base_url=relay.open(session), api_key="EMPTY", untrained_url="", marks=NO_MARKS)
    try:
        if config.command:
            work: Awaitable[Any] = run_command(config, question, seen, context)
        elif config.agl_class:
            work = run_agl_class(config, question, seen, context, relay.agl_addresses(session))
        else:
            work = load_episode(config.episode)(question, seen, [EpisodeTool(tool, context) for tool in tools])
        ending_s = ENDING_S if config.episode else PROGRAM_S
        given = await within(contained(work), limit_s=limit_s, ending_s=ending_s)
    except Overdue as exc:
        raise EpisodeFault(f"the episode took more than agent.episode_timeout_s = {limit_s:g} s; {exc}") from exc
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
