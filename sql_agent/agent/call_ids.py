"""The policy's model, whose tool calls have ids of their own whatever its endpoint calls them.

Servers exist that number the calls of each answer anew, or name none; openai-agents would take the second `call_0` of
a conversation for the model's mistake, and the episode would end.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any

from agents import ModelResponse, OpenAIChatCompletionsModel
from openai.types.responses import ResponseFunctionToolCall


def told_apart(answer: Iterable[Any], history: str | list[Any]) -> None:
    """Rename the calls of an answer that have an id of an earlier one, or none."""
    seen = {item.get("call_id") for item in history if isinstance(item, dict)} if isinstance(history, list) else set()
    for item in answer:
        if isinstance(item, ResponseFunctionToolCall):
            if not item.call_id or item.call_id in seen:
                item.call_id = f"{item.call_id or 'call'}.{len(seen)}"
            seen.add(item.call_id)


def logprob_of(completion: Any) -> float | None:
    """The log-probability of an answer's tokens together; None where the server does not tell it."""
    tokens = getattr(completion.choices[0].logprobs, "content", None)
    return sum(token.logprob for token in tokens) if tokens else None


class PolicyModel(OpenAIChatCompletionsModel):
    """See the module. `logprobs` gets the log-probability of each answer."""

    def __init__(self, *args: Any, logprobs: list[float | None] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._logprobs = logprobs

    async def _fetch_response(self, *args: Any, **kwargs: Any) -> Any:
        """openai-agents' own step from request to completion, which drops the log-probabilities."""
        fetched = await super()._fetch_response(*args, **kwargs)
        if self._logprobs is None:
            return fetched
        if isinstance(fetched, tuple):
            response, stream = fetched
            return response, self._summed(stream)
        self._logprobs.append(logprob_of(fetched))
        return fetched

    async def _summed(self, stream: AsyncIterable[Any]) -> AsyncIterator[Any]:
        """The events of a stream; behind its last one its log-probability is known."""
        per_chunk: list[float] = []
        async for chunk in stream:
            if chunk.choices and (logprob := logprob_of(chunk)) is not None:
                per_chunk.append(logprob)
            yield chunk
        if self._logprobs is not None:
            self._logprobs.append(sum(per_chunk) if per_chunk else None)

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        response = await super().get_response(system_instructions, input, *args, **kwargs)
        told_apart(response.output, input)
        return response

    async def stream_response(
        self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Its events; each whole call, and the answer at the end, has the new id."""
        before: list[Any] = list(input) if isinstance(input, list) else []
        async for event in super().stream_response(system_instructions, input, *args, **kwargs):
            if event.type == "response.output_item.done":
                told_apart([event.item], before)
                before.append({"call_id": getattr(event.item, "call_id", None)})
            elif event.type == "response.completed":
                told_apart(event.response.output, input)
            yield event
