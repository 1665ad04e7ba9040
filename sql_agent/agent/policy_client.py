"""The client of the policy's endpoint, of the built-in loop and of the relay: each request once, each answer looked at.

Is this answer a chat completion? Asked on the wire, before openai and openai-agents make of it what they can: without
it a web page ends in AttributeError, half a JSON in JSONDecodeError, and an answer without choices passes for an empty
one, with reward 0. Only what the agent uses is checked; servers differ in the rest.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import openai
from pydantic import BaseModel, Field, ValidationError

from foundation.errors import problems_of
from foundation.net import is_loopback
from sql_agent.agent.endpoint import LLMEndpoint, is_overflow
from sql_agent.errors import LLMFault
from sql_agent.records import StopReason

CONNECT_RETRIES = 4


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
        why = problems_of(exc, most=1)
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


class EndpointClient(openai.AsyncOpenAI):
    """An OpenAI client that sends once.

    On this machine a connection that cannot be made is tried again for 3.5 s: nothing was sent, and a gateway that was
    killed is there again. Plain http skips loading TLS certificates (20 ms per client).
    """

    def __init__(self, llm: LLMEndpoint, *, timeout_s: float, streams: bool = False) -> None:
        here = is_loopback(llm.base_url)
        verify = not llm.base_url.startswith("http://")
        http = httpx2.AsyncClient(
            timeout=timeout_s,
            trust_env=not here,
            verify=verify,
            transport=httpx2.AsyncHTTPTransport(verify=verify, retries=CONNECT_RETRIES) if here else None,
            follow_redirects=True,
            event_hooks={"response": [require_stream if streams else require_completion]},
        )
        super().__init__(
            base_url=llm.base_url, api_key=llm.api_key or "EMPTY", http_client=http, max_retries=0, timeout=timeout_s
        )
        self._llm = llm
        self._limit_s = timeout_s

    async def request(self, *args: Any, **kwargs: Any) -> Any:
        """openai's own, whose limit is for each read: a server that drips its answer would never be too slow."""
        try:
            async with asyncio.timeout(self._limit_s):
                return await super().request(*args, **kwargs)
        except TimeoutError as exc:
            raise openai.APITimeoutError(httpx2.Request("POST", self._llm.base_url)) from exc


class PolicyClient(EndpointClient):
    """One whose completions are sampled as the endpoint says."""

    async def _prepare_options(self, options: Any) -> Any:
        """openai's hook for what subclasses change in a request."""
        if isinstance(options.json_data, dict) and "messages" in options.json_data:
            options.json_data = self._llm.request(options.json_data)
        return options


def overflow(exc: Exception) -> StopReason:
    """The policy's end of a request that is refused for its length. Raises LLMFault for whatever else failed."""
    if isinstance(exc, LLMFault):
        raise exc
    # What fails amid a stream has no status.
    if getattr(exc, "status_code", 400) == 400 and is_overflow(str(exc)):
        return "context_overflow"
    raise LLMFault(f"the model endpoint failed: {type(exc).__name__}: {exc}") from exc
