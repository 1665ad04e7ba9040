"""Is this answer a chat completion? Asked on the wire, before openai and openai-agents make of it what they can.

Without it a web page ends in AttributeError, half a JSON in JSONDecodeError, and an answer without choices passes for
an empty one, with reward 0. Only what the agent uses is checked; servers differ in the rest.
"""

from __future__ import annotations

import json

import httpx2
from pydantic import BaseModel, Field, ValidationError

from sql_agent.errors import LLMFault


class _Function(BaseModel):
    name: str
    arguments: str


class _Call(BaseModel):
    id: str
    function: _Function | None = None


class _Message(BaseModel):
    content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(BaseModel):
    message: _Message


class _Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)


async def require_completion(response: httpx2.Response) -> None:
    """An httpx2 response hook. Raises LLMFault for a successful answer that is no chat completion."""
    if not response.is_success:
        return
    body = await response.aread()
    try:
        _Completion.model_validate(json.loads(body))
    except ValidationError as exc:
        error = exc.errors()[0]
        why = f"{'.'.join(map(str, error['loc']))}: {error['msg']}"
    except (ValueError, RecursionError):
        why = f"it begins with {body[:60].decode('utf-8', 'replace')!r}"
    else:
        return
    raise LLMFault(f"{response.request.url}: status {response.status_code}, but not a chat completion ({why})")


async def require_stream(response: httpx2.Response) -> None:
    """The same for a client that streams: only what the answer says it is can be known before its end."""
    kind = response.headers.get("content-type", "nothing")
    if response.is_success and not kind.startswith("text/event-stream"):
        raise LLMFault(
            f"{response.request.url}: status {response.status_code}, but no stream of events (Content-Type: {kind:.60})"
        )
