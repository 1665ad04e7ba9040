"""A conversation with the agent: the loop of an episode, streamed, its history kept from one message to the next.

Guarantees: model, prompt and tools are those of the configuration; an environment is begun with the first message and
lives until `reset`. A message that fails or is interrupted leaves the history as it was. Not covered: rewards,
agent.context (a conversation keeps its history, and /reset ends it), and episodes of one's own (agent.episode,
agent.command), which play one question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import openai
from agents import ModelSettings, RunConfig, Runner

from foundation.errors import AgentGRPOError
from foundation.marks import Showing
from sql_agent.agent.call_ids import PolicyModel
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import ANSWERS, ENDINGS, EpisodeHooks, EpisodeRunner, build_agent, stop_reason_of
from sql_agent.agent.policy_client import PolicyClient
from sql_agent.agent.tool import EpisodeContext, with_real_arguments
from sql_agent.agent.toolset import EpisodeTools
from sql_agent.records import Question

# What happens, as it happens: "text" (a piece of the answer), "thought", "call" (name and arguments) or "result".
Tell = Callable[[str, str], None]


class Stopped(AgentGRPOError):
    """The answer ended before its end, by the model's own doing. The text says why, and what helps.

    `is_too_long`: what was said does not fit into the model's context, and would not another time.
    """

    def __init__(self, text: str, *, is_too_long: bool = False) -> None:
        super().__init__(text)
        self.is_too_long = is_too_long


class Conversation:
    """Messages to one agent, one after the other; `history` is what was said before, as messages with a role.

    `answered` is of the last message, `last` of the last one that called a tool.
    """

    def __init__(
        self, runner: EpisodeRunner, llm: LLMEndpoint, db_id: str = "", *, history: Sequence[Any] = ()
    ) -> None:
        self._runner, self.llm, self._db_id = runner, runner.prompted(llm), db_id
        self.llm_timeout_s = runner.config.agent.llm_timeout_s
        self._open = AsyncExitStack()
        self._offered: EpisodeTools | None = None
        self._history: list[Any] = list(history)
        self.last = self.answered = EpisodeContext()

    async def reset(self) -> None:
        """Forget what was said, and end the tools' environments."""
        self._history, self._offered = [], None
        await self._open.aclose()

    async def say(self, text: str, tell: Tell) -> None:
        """Send a message, and tell of the answer as it comes.

        Raises Stopped, LLMFault, DatabaseFault or ToolFault; then the message does not count as said.
        """
        context = self._runner.context()
        try:
            content = await self._begun(text)
            messages = [*self._history, {"role": "user", "content": content}]
            async with PolicyClient(self.llm, timeout_s=self.llm_timeout_s, streams=True) as client:
                self._history = await self._answer(messages, context, client, tell)
        finally:
            self.answered = context
            if context.call_keys:
                self.last = context
            if not self._history:  # its environments were begun for this message alone
                await self.reset()

    async def _begun(self, text: str) -> str:
        """The message, and what the environments say beside the first one."""
        if self._offered:
            return text
        question = Question(id="chat", question=text, db_id=self._db_id)
        self._offered = await self._open.enter_async_context(self._runner.toolset.for_episode(question))
        return "\n".join([text, *self._offered.observations])

    async def _answer(
        self, messages: list[Any], context: EpisodeContext, client: openai.AsyncOpenAI, tell: Tell
    ) -> list[Any]:
        """The history with the answer. What fails is raised in this project's terms."""
        try:
            return await self._stream(messages, context, client, tell)
        except (*ENDINGS, httpx2.HTTPError, ValueError) as exc:  # ValueError: an event that is no JSON
            limit = self._runner.config.agent.max_turns
            texts = {
                "max_turns": f"no answer after agent.max_turns = {limit} model calls; "
                f"--set agent.max_turns={2 * limit}",
                "repeated_call": f"the same call {context.repeat_limit} times (agent.repeat_limit); say it otherwise",
                "invalid_tool_call": f"the model's answer cannot be used ({exc}); say it otherwise",
                "context_overflow": "the conversation is longer than the model can read; begin a new one",
            }
            reason = stop_reason_of(exc, context)
            raise Stopped(texts[reason], is_too_long=reason == "context_overflow") from exc

    async def _stream(
        self, messages: list[Any], context: EpisodeContext, client: openai.AsyncOpenAI, tell: Tell
    ) -> list[Any]:
        assert self._offered
        tools = [self._runner.read(tool, messages[-1]["content"]) for tool in self._offered.tools]
        result = Runner.run_streamed(
            build_agent(
                PolicyModel(model=self.llm.model, openai_client=client, logprobs=context.logprobs),
                system_prompt=self._runner.prompt_for(self._db_id),
                tools=[with_real_arguments(tool, self.llm.marks) for tool in tools],
            ),
            messages,
            context=context,
            max_turns=self._runner.config.agent.max_turns,
            hooks=EpisodeHooks(),
            run_config=RunConfig(tracing_disabled=True, model_settings=ModelSettings(include_usage=True)),
            error_handlers=ANSWERS,
        )
        try:
            showing = Showing(self.llm.marks)
            async for event in result.stream_events():
                _pass_on(event, tell, showing)
            _tell_rest(tell, showing)
        finally:
            result.cancel()
        if not str(result.final_output or "").strip():
            raise Stopped("the model said nothing; say it otherwise")
        return result.to_input_list()


def _pass_on(event: Any, tell: Tell, showing: Showing) -> None:
    kind = event.data.type if event.type == "raw_response_event" else getattr(event, "name", "")
    if kind in ("response.output_text.delta", "response.refusal.delta"):
        if text := showing.add(event.data.delta):
            tell("text", text)
        return
    _tell_rest(tell, showing)
    if kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
        tell("thought", event.data.delta)
    elif kind == "tool_called":
        tell("call", f"{event.item.raw_item.name} {showing.marks.arguments(event.item.raw_item.arguments)}")
    elif kind == "tool_output":
        tell("result", str(event.item.output))


def _tell_rest(tell: Tell, showing: Showing) -> None:
    if rest := showing.end():
        tell("text", rest)
