"""One answer of the served agent: that of one conversation, or the one that several vote for.

Guarantees: environments are begun and ended with the answer; with a vote, each of the conversations plays for itself,
and nothing is told before all of them have ended; a fault in one is a fault of the answer. What ends without an answer
by the model's own doing has no vote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sql_agent.agent.conversation import Conversation, Stopped, Tell
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.agent.tool import EpisodeContext
from sql_agent.scoring.vote import choose
from sql_agent.serving.agent_request import ChatRequest


@dataclass
class Sample:
    """One conversation's answer: its pieces, in order, what it came to, and `stopped`, why there is none."""

    llm: LLMEndpoint
    pieces: list[tuple[str, str]] = field(default_factory=list)
    context: EpisodeContext = field(default_factory=EpisodeContext)
    stopped: Stopped | None = None

    @property
    def text(self) -> str:
        """What was said after the last call of a tool."""
        last = max((n for n, (kind, _) in enumerate(self.pieces) if kind == "call"), default=-1)
        return "".join(text for kind, text in self.pieces[last + 1 :] if kind == "text")


@dataclass(frozen=True)
class Answer:
    """The sample that is sent, and all that were drawn."""

    chosen: Sample
    drawn: Sequence[Sample]

    @property
    def finish_reason(self) -> str:
        """OpenAI's word for why the last call ended: `length` at the limit of tokens, where one was sent."""
        limit = self.chosen.llm.max_tokens
        used = self.chosen.context.llm_calls[-1].completion_tokens or 0
        return "length" if limit and used >= limit else "stop"

    @property
    def usage(self) -> dict[str, int]:
        """The tokens of all that were drawn."""
        calls = [call for sample in self.drawn for call in sample.context.llm_calls]
        prompt = sum(call.prompt_tokens or 0 for call in calls)
        completion = sum(call.completion_tokens or 0 for call in calls)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


@dataclass(frozen=True)
class Answerer:
    """Answers requests with one agent; `vote` conversations are drawn for each, 0 or 1: one."""

    runner: EpisodeRunner
    llm: LLMEndpoint
    db_id: str = ""
    vote: int = 0

    async def answer(self, request: ChatRequest, tell: Tell) -> Answer:
        """Answer the last message. Raises Stopped, LLMFault, DatabaseFault or ToolFault."""
        if self.vote < 2:
            sample = await self._sample(request, request.sampled(self.llm), tell)
            if sample.stopped:
                raise sample.stopped
            return Answer(sample, [sample])
        drawn = await self._draw(request)
        voters = [sample.context for sample in drawn if not sample.stopped]
        if not voters and (stopped := drawn[0].stopped):
            raise stopped
        winner = choose(voters)
        chosen = next(sample for sample in drawn if sample.context is winner)
        for kind, text in chosen.pieces:
            tell(kind, text)
        return Answer(chosen, drawn)

    async def _draw(self, request: ChatRequest) -> list[Sample]:
        llm = replace(self.llm, logprobs=True)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._sample(request, request.sampled(llm, number)))
                    for number in range(self.vote)
                ]
        except* Exception as several:
            raise several.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _sample(self, request: ChatRequest, llm: LLMEndpoint, tell: Tell | None = None) -> Sample:
        *before, last = request.plain_messages
        talk = Conversation(self.runner, llm, self.db_id, history=before)
        sample = Sample(llm)

        def record(kind: str, text: str) -> None:
            sample.pieces.append((kind, text))
            if tell:
                tell(kind, text)

        try:
            await talk.say(last["content"], record)
        except Stopped as stopped:
            sample.stopped = stopped
        finally:
            sample.context = talk.answered
            await talk.reset()
        return sample
