"""Episodes of one's own: an async function, or a foreign program, in place of the loop in episode.py.

`agent.episode` names a function, see own_function.py; for `agent.command` and `agent.agl_class` see own_program.py.
Guarantees: the model is reached through the relay, which samples, counts and remembers faults; what raises, ends with
an error or takes more than agent.episode_timeout_s is a fault and never a 0; what comes after that limit is nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from foundation.background import Overdue, contained, within
from foundation.files import writable
from foundation.marks import NO_MARKS
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.own_program import PROGRAM_S, run_program
from sql_agent.agent.relay import Relay, Session
from sql_agent.agent.tool import EpisodeContext, Tool
from sql_agent.agent.toolset import Toolset
from sql_agent.config import AgentConfig
from sql_agent.errors import EpisodeFault, Fault
from sql_agent.records import Episode, Question, StopReason


async def play_own(
    relay: Relay,
    question: Question,
    llm: LLMEndpoint,
    context: EpisodeContext,
    *,
    config: AgentConfig,
    tools: Sequence[Tool],
    toolset: Toolset,
) -> tuple[str, StopReason]:
    """Play with the configured function or program. Raises LLMFault, ToolFault, EpisodeFault."""
    limit_s = config.episode_timeout_s
    session = Session(llm, context, config.max_turns, config.llm_timeout_s, match=config.match)
    # The relay hides the model's control tokens, and shows them again.
    relayed_llm = replace(llm, base_url=relay.open(session), api_key="EMPTY", untrained_url="", marks=NO_MARKS)
    try:
        if config.episode:
            session.tools = {tool.name: tool for tool in tools}
            result = await toolset.play(question, relayed_llm, tools)
        else:
            work = run_program(config, question, relayed_llm, context, relay.agl_addresses(session))
            result = await within(contained(work), limit_s=limit_s, ending_s=PROGRAM_S)
    except Overdue as exc:
        raise EpisodeFault(f"the episode took more than agent.episode_timeout_s = {limit_s:g} s; {exc}") from exc
    except Exception as exc:  # the user's own code may fail in any way
        result = _after_failure(session, exc)
    finally:
        relay.end(session)
    if session.fault:
        raise session.fault
    if context.fault:  # a tool's, whatever was made of it
        raise context.fault
    return _ended(result, context, session)


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


def _ended(result: str | Episode, context: EpisodeContext, session: Session) -> tuple[str, StopReason]:
    if isinstance(result, Episode):
        context.messages = context.messages or list(result.messages)
        context.tool_calls = context.tool_calls or list(result.tool_calls)
        answer, reason = result.final_answer, result.stop_reason
    else:
        answer, reason = result, "answered"
    answer = writable(answer)
    if not answer.strip():
        return "", session.stop or ("empty_answer" if reason == "answered" else reason)
    return answer, reason
