"""The policy's model, whose tool calls have ids of their own whatever its endpoint calls them.

Servers exist that number the calls of each answer anew, or name none; openai-agents would take the second `call_0` of
a conversation for the model's mistake, and the episode would end.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any

from agents import OpenAIChatCompletionsModel


def tell_apart(calls: Iterable[Any], ids: set[str]) -> None:
    """Rename the calls that have one of these ids, or none; `ids` holds theirs too from then on."""
    for call in calls:
        if not call.id or call.id in ids:
            call.id = f"{call.id or 'call'}.{len(ids)}"
        ids.add(call.id)


def logprob_of(completion: Any) -> float | None:
    """The log-probability of an answer's tokens together; None where the server does not tell it."""
    tokens = getattr(completion.choices[0].logprobs, "content", None)
    return sum(token.logprob for token in tokens) if tokens else None


class PolicyModel(OpenAIChatCompletionsModel):
    """See the module. `logprobs` gets the log-probability of each answer, which openai-agents drops."""

    def __init__(self, *args: Any, logprobs: list[float | None] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._logprobs = [] if logprobs is None else logprobs

    async def _fetch_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        """openai-agents' own step from request to completion."""
        fetched = await super()._fetch_response(system_instructions, input, *args, **kwargs)
        ids = {item["call_id"] for item in input if isinstance(item, dict) and "call_id" in item}
        if isinstance(fetched, tuple):
            response, stream = fetched
            return response, self._read(stream, ids)
        tell_apart(fetched.choices[0].message.tool_calls or [], ids)
        self._logprobs.append(logprob_of(fetched))
        return fetched

    async def _read(self, stream: AsyncIterable[Any], ids: set[str]) -> AsyncIterator[Any]:
        """The events of a stream; behind its last one its log-probability is known."""
        per_chunk: list[float] = []
        begun: dict[int, Any] = {}
        async for chunk in stream:
            if chunk.choices and (logprob := logprob_of(chunk)) is not None:
                per_chunk.append(logprob)
            for part in (chunk.choices[0].delta.tool_calls if chunk.choices else None) or []:
                if part.index not in begun:
                    tell_apart([part], ids)
                    begun[part.index] = part.id
                part.id = begun[part.index]
            yield chunk
        self._logprobs.append(sum(per_chunk) if per_chunk else None)
