"""One question, one episode: the openai-agents loop used by training, evaluation and the try-out alike.

Guarantees: no retry (a failed attempt never leaves half a trace); tracing upload is off; max_turns comes from the
configuration alone. What the policy does wrong ends the episode with a stop reason; what breaks around it is a Fault.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import replace
from functools import cached_property
from typing import Any

import openai
from agents import (
    Agent,
    FunctionTool,
    MaxTurnsExceeded,
    Model,
    ModelBehaviorError,
    RunConfig,
    RunContextWrapper,
    RunErrorHandlerResult,
    RunErrorHandlers,
    RunHooks,
    Runner,
    set_tracing_disabled,
)
from agents import UserError as AgentsUserError

from foundation.background import contained
from foundation.errors import AgentGRPOError, UserError
from foundation.files import writable
from sql_agent.agent.call_ids import PolicyModel
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.long_context import ShortenedModel
from sql_agent.agent.own_episode import play_own
from sql_agent.agent.own_program import program_of
from sql_agent.agent.policy_client import PolicyClient, overflow
from sql_agent.agent.reader import ResultsReader, reader_of, reading
from sql_agent.agent.relay import Relay
from sql_agent.agent.sql_tool import QUERY
from sql_agent.agent.tool import EpisodeContext, Tool, is_repeated_call, with_real_arguments
from sql_agent.agent.toolset import EpisodeTools, Toolset
from sql_agent.agent.transcript import assistant_message
from sql_agent.config import TITLES, AgentConfig, AgentTree, agent_config, prompt_text
from sql_agent.environment.databases import Databases
from sql_agent.environment.sql_text import as_written
from sql_agent.records import Episode, Played, Question, StopReason

set_tracing_disabled(True)

SCHEMA_MARK = "{schema}"


class EpisodeStopped(AgentGRPOError):
    """The policy makes the same call again and again."""


ENDINGS = (EpisodeStopped, MaxTurnsExceeded, ModelBehaviorError, AgentsUserError, openai.OpenAIError)


def _refused(given: Any) -> RunErrorHandlerResult:
    return RunErrorHandlerResult(given.error.refusal, include_in_history=False)  # where it stands already


ANSWERS: RunErrorHandlers[Any] = {"model_refusal": _refused}  # what the loop takes for failures, and are answers


class EpisodeHooks(RunHooks[EpisodeContext]):
    """Counts answered LLM calls as turns, writes down what was said and used, and stops an endless same call."""

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        if is_repeated_call(context.context):
            raise EpisodeStopped
        context.context.asked_s = time.time()

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        episode, usage = context.context, response.usage
        _trim_before_calls(response.output)
        episode.answered(episode.asked_s, prompt_tokens=usage.input_tokens, completion_tokens=usage.output_tokens)
        episode.messages.append(assistant_message(response.output))

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        answer = {"role": "tool", "tool_call_id": context.tool_call_id, "content": writable(str(result))}
        context.context.messages.append(answer)


def _trim_before_calls(items: list[Any]) -> None:
    """Drop the line break between words and a tool call.

    vLLM's hermes parser leaves it in the text and Qwen's templates write their own: with both, the next prompt does not
    begin with this prompt and answer, and the call is trained in a row of its own.
    """
    if any(item.type == "function_call" for item in items):
        parts = [part for item in items if item.type == "message" for part in item.content]
        for part in parts:
            if part.type == "output_text":
                part.text = part.text.removesuffix("\n")


def system_prompt_of(config: AgentConfig, databases: Databases | None, db_id: str) -> str:
    """The text of the system prompt, with {dialect} and {schema} replaced by the kind, the tables and columns of the
    question's database, their names in quotes where SQL needs them.

    Raises UserError naming the prompts there are, and for a {schema} without a database; DatabaseFault for a database
    that does not open.
    """
    text = prompt_text(config.system_prompt)
    if databases:
        text = text.replace("{dialect}", TITLES[databases.config.dialect])
    if SCHEMA_MARK not in text:
        return text
    if databases is None:
        raise UserError(
            f"agent.system_prompt = {config.system_prompt!r} holds {SCHEMA_MARK}, but agent.tools = {config.tools} has "
            "no sql: take the mark out of the prompt, or add sql to the tools"
        )
    written = as_written(databases.of(db_id).schema(), databases.config.dialect)
    lines = [f"{table}: {', '.join(columns)}" for table, columns in written.items()]
    return text.replace(SCHEMA_MARK, "\n".join(lines))


def build_agent(model: Model, *, system_prompt: str, tools: Sequence[Tool]) -> Agent[EpisodeContext]:
    return Agent(
        name="agent", instructions=system_prompt, tools=[function_tool_of(tool) for tool in tools], model=model
    )


def function_tool_of(tool: Tool) -> FunctionTool:

    async def on_invoke_tool(wrapper: RunContextWrapper[EpisodeContext], raw: str) -> str:
        return await tool.invoke(wrapper.context, raw)

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.parameters,
        on_invoke_tool=on_invoke_tool,
        strict_json_schema=tool.strict,
    )


class EpisodeRunner(AbstractContextManager["EpisodeRunner"]):
    """Plays episodes as the configuration says. What they share is opened on first use, in the process that uses it.

    A question that names an agent is played by that agent, whose runner is `of(name)`.
    """

    def __init__(self, config: AgentTree) -> None:
        self.config = config
        self.toolset = Toolset(config)
        self._others: dict[str, EpisodeRunner] = {}
        self._prompts: dict[str, str] = {}

    def of(self, agent: str) -> EpisodeRunner:
        """The runner of one agent, "" being [agent] itself; closed with this. Raises UserError for an unknown name."""
        if agent and agent not in self._others:
            self._others[agent] = EpisodeRunner(agent_config(self.config, agent))
        return self._others[agent] if agent else self

    @cached_property
    def _relay(self) -> Relay:
        return Relay(self.toolset.loop)

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @cached_property
    def reader(self) -> ResultsReader | None:
        """The second model that reads long results. Raises UserError."""
        return reader_of(self.config.agent.reader)

    def prompt_for(self, db_id: str = "") -> str:
        """What the model is told first of a question with this db_id. Raises UserError, DatabaseFault."""
        if db_id not in self._prompts:
            self._prompts[db_id] = system_prompt_of(self.config.agent, self.toolset.databases, db_id)
        return self._prompts[db_id]

    def check(self) -> None:
        """Find what cannot work before the first episode. Raises UserError."""
        self.toolset.check()
        _ = self.reader
        if not self.config.agent.custom_episode:
            databases = self.toolset.databases
            self.prompt_for(databases.any_id if databases else "")
        if self.config.agent.command or self.config.agent.agl_class:
            program_of(self.config.agent)
        for name in self.config.agents:
            self.of(name).check()

    def close(self) -> None:
        for other in self._others.values():
            other.close()
        if "_relay" in self.__dict__:
            self._relay.close()
        self.toolset.close()

    def prompted(self, llm: LLMEndpoint) -> LLMEndpoint:
        """The endpoint with the configured keys of the chat template."""
        return replace(llm, template_kwargs=self.config.agent.chat_template_kwargs)

    async def run(self, question: Question, llm: LLMEndpoint) -> Episode:
        """Let the question's agent answer it, with the template's keys of the configuration.

        Raises LLMFault, DatabaseFault, ToolFault or EpisodeFault when endpoint, database, a tool or an episode of
        one's own failed: such an episode has no reward.
        """
        return await contained(self.of(question.agent)._run(question, llm))

    def context(self) -> EpisodeContext:
        agent = self.config.agent
        return EpisodeContext(
            max_chars=self.toolset.max_chars(agent.tool_max_chars),
            timeout_s=agent.tool_timeout_s,
            repeat_limit=agent.repeat_limit,
        )

    async def _run(self, question: Question, llm: LLMEndpoint) -> Episode:
        context = self.context()
        started = time.monotonic()
        async with self.toolset.for_episode(question) as offered:
            answer, reason = await self._play(question, self.prompted(llm), context, offered)
            reward = await offered.reward() if context.reward is None else context.reward
        return Episode(
            question=question,
            final_answer=answer,
            stop_reason=reason,
            elapsed_s=round(time.monotonic() - started, 4),
            llm_calls=context.llm_calls,
            environment_reward=reward,
            **{name: getattr(context, name) for name in Played.model_fields},
        )

    async def _play(
        self, question: Question, llm: LLMEndpoint, context: EpisodeContext, offered: EpisodeTools
    ) -> tuple[str, StopReason]:
        agent = self.config.agent
        text = "\n".join([question.question, *offered.observations])
        tools = [self.read(tool, question.question) for tool in offered.tools]
        if agent.custom_episode:
            prompted = question.model_copy(update={"question": text})
            return await play_own(self._relay, prompted, llm, context, config=agent, tools=tools, toolset=self.toolset)
        async with AsyncExitStack() as stack:
            model = await self._model(llm, context, stack)
            shown = [with_real_arguments(tool, llm.marks) for tool in tools]
            built = build_agent(model, system_prompt=self.prompt_for(question.db_id), tools=shown)
            answer, reason = await _run(built, text, context, max_turns=agent.max_turns)
            return llm.marks.shown(answer), reason

    def read(self, tool: Tool, question: str) -> Tool:
        """The tool with its long results read by the second model, where there is one."""
        config = self.config
        if self.reader is None:
            return tool
        limit = config.database.max_chars if tool.name == QUERY else config.agent.tool_max_chars
        return reading(tool, self.reader, question, min_chars=config.agent.reader.min_chars, max_chars=limit)

    async def _model(self, llm: LLMEndpoint, context: EpisodeContext, stack: AsyncExitStack) -> Model:
        """The policy, with its history kept or shortened; its clients are closed with the stack."""
        agent, rollout = self.config.agent, self.config.rollout

        async def at(url: str) -> Model:
            client = PolicyClient(replace(llm, base_url=url), timeout_s=agent.llm_timeout_s)
            return PolicyModel(
                model=llm.model, openai_client=await stack.enter_async_context(client), logprobs=context.logprobs
            )

        model = await at(llm.base_url)
        if agent.context == "keep":
            return model
        beside = agent.context == "summarise" and not agent.train_summaries and llm.untrained_url
        return ShortenedModel(
            model,
            await at(beside) if beside else model,
            agent,
            context,
            max_tokens=agent.context_tokens or rollout.context_tokens,
            answer_tokens=llm.max_tokens or rollout.max_response_tokens,
        )


async def _run(
    agent: Agent[EpisodeContext], text: str, context: EpisodeContext, *, max_turns: int
) -> tuple[str, StopReason]:
    try:
        result = await Runner.run(
            agent,
            text,
            context=context,
            max_turns=max_turns,
            hooks=EpisodeHooks(),
            run_config=RunConfig(tracing_disabled=True),
            error_handlers=ANSWERS,
        )
    except ENDINGS as exc:
        return "", stop_reason_of(exc, context)
    answer = writable(str(result.final_output or ""))
    return answer, "answered" if answer.strip() else "empty_answer"


def stop_reason_of(exc: Exception, context: EpisodeContext) -> StopReason:
    """Why the policy could not go on, of what openai-agents' loop raised. Raises what broke around it as a Fault."""
    match exc:
        case EpisodeStopped():
            return "repeated_call"
        case MaxTurnsExceeded():
            return "max_turns"
        case ModelBehaviorError():
            return "invalid_tool_call"
        case AgentsUserError():  # openai-agents wraps what a tool raises; the tool left the original in the context
            raise context.fault or exc from exc
        case _:
            return overflow(exc)
