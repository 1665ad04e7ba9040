"""The agent behind one OpenAI-compatible address: chat completions (plain and streamed), models, health, metrics.

Guarantees: no state from one request to the next: the client's messages are the history, the system prompt and the
tools are the configuration's; a fault of model, database or tool is an error reply, never an answer; a key that is not
known is refused by name. The client's sampling keys count in each call of the
model. Not covered: agent.context, episodes of one's own, several answers, log-probabilities.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from foundation.errors import AgentGRPOError, UserError
from foundation.http_gate import RETRY_AFTER_S, Gate, Traffic
from foundation.request_metrics import RequestMetrics
from sql_agent.agent.conversation import Conversation, Stopped, Tell
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.errors import Fault, LLMFault

PATHS = frozenset({"/health", "/metrics", "/v1/models", "/v1/chat/completions"})

Text = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True)
class Limits:
    """What one server takes."""

    max_open: int = 256
    time_s: float = 300.0
    max_body_bytes: int = 1 << 20
    body_timeout_s: float = 30.0


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Message(_Strict):
    """One message of the client. The system prompt and the tools are the agent's, so their roles are refused."""

    role: Literal["user", "assistant"]
    content: str = Field(min_length=1)


class StreamOptions(_Strict):
    """OpenAI's."""

    include_usage: bool = False


class ChatRequest(_Strict):
    """What may be asked. `tool_calls` asks for the calls of tools, with SQL and rows, beside the answer."""

    model: str
    messages: list[Message] = Field(min_length=1)
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    tool_calls: bool = False
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    seed: int | None = Field(default=None, ge=0, lt=1 << 63)
    stop: Text | Annotated[list[Text], Field(max_length=16)] | None = None
    max_tokens: int | None = Field(default=None, gt=0)
    max_completion_tokens: int | None = Field(default=None, gt=0)
    n: Literal[1] | None = None
    user: str | None = None

    def sampled(self, llm: LLMEndpoint) -> LLMEndpoint:
        """`llm` as asked for: what is left open stays, a limit can only be lowered, and stop texts come on top."""
        names = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
        keys = {name: value for name in names if (value := getattr(self, name)) is not None}
        own = [self.stop] if isinstance(self.stop, str) else self.stop or []
        limits = [one for one in (llm.max_tokens, self.max_tokens, self.max_completion_tokens) if one]
        seeds = llm.seeds if self.seed is None else itertools.repeat(self.seed)
        stop = tuple(dict.fromkeys([*llm.stop, *own]))
        return replace(llm, **keys, stop=stop, max_tokens=min(limits, default=None), seeds=seeds)


class NoReply(AgentGRPOError):
    """Why there is no answer, as a status and OpenAI's error object."""

    def __init__(self, status: int, text: str, kind: str) -> None:
        super().__init__(text)
        self.code = status
        self.kind = kind

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"message": str(self), "type": self.kind, "param": None, "code": self.code}}


class AgentApi:
    """The routes over one agent. `name` is the model's name to clients."""

    def __init__(self, runner: EpisodeRunner, llm: LLMEndpoint, *, name: str, limits: Limits, db_id: str = "") -> None:
        if runner.config.agent.context != "keep":
            raise UserError(
                f"agent.context = {runner.config.agent.context!r}: a served agent keeps its history; set keep"
            )
        if runner.config.agent.reader.min_chars:
            raise UserError("agent.reader.min_chars: a served agent reads results itself; set it to 0")
        if own := runner.config.agent.own:
            raise UserError(f"{own} plays one question an episode and cannot be served; serve an agent of agent.tools")
        self._runner, self._llm, self._name, self._limits, self._db_id = runner, llm, name, limits, db_id
        self._open = 0
        self.metrics = RequestMetrics("agent_api")

    def app(self, traffic: Traffic, *, token: str) -> Starlette:
        """The ASGI application."""
        gate = Middleware(
            Gate,
            token=token,
            open_paths=frozenset({"/health"}),
            known_paths=PATHS,
            max_body_bytes=self._limits.max_body_bytes,
            body_timeout_s=self._limits.body_timeout_s,
            metrics=self.metrics,
            traffic=traffic,
        )
        routes = [
            Route("/health", self._health),
            Route("/metrics", self._metrics),
            Route("/v1/models", self._models),
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
        ]
        return Starlette(routes=routes, middleware=[gate])

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _metrics(self, _: Request) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def _models(self, _: Request) -> Response:
        one = {"id": self._name, "object": "model", "created": 0, "owned_by": "agentgrpo"}
        return JSONResponse({"object": "list", "data": [one]})

    async def _chat(self, request: Request) -> Response:
        try:
            asked = self._read(await request.body())
            turn = _Turn(self, asked)
            if asked.stream:
                return StreamingResponse(turn.events(), media_type="text/event-stream")
            return JSONResponse(await turn.whole())
        except NoReply as no:
            headers = {"Retry-After": str(RETRY_AFTER_S)} if no.code in (429, 503, 504) else {}
            return JSONResponse(no.body, status_code=no.code, headers=headers)

    def _read(self, body: bytes) -> ChatRequest:
        try:
            asked = ChatRequest.model_validate_json(body)
        except ValidationError as exc:
            one = exc.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, one["loc"])) or "body"
            raise NoReply(400, f"{where}: {one['msg']}", "invalid_request_error") from None
        if asked.model != self._name:
            raise NoReply(404, f"model {asked.model[:80]!r}: there is {self._name!r}", "invalid_request_error")
        if asked.messages[-1].role != "user":
            raise NoReply(400, "messages: the last one must be the user's", "invalid_request_error")
        return asked

    def begin(self, asked: ChatRequest, tell: Tell) -> asyncio.Future[Conversation]:
        """The answer, begun; it counts as in flight until it is done. Raises NoReply at the limit."""
        if self._open >= self._limits.max_open:
            raise NoReply(429, f"{self._open} conversations are in flight, which is the limit", "overloaded")
        self._open += 1
        task = asyncio.ensure_future(self._answer(asked, tell))
        task.add_done_callback(self._ended)
        return task

    def _ended(self, _: object) -> None:
        self._open -= 1

    async def _answer(self, asked: ChatRequest, tell: Tell) -> Conversation:
        """Answer the last message, the environments begun and ended with it. Raises NoReply."""
        *before, last = (message.model_dump() for message in asked.messages)
        talk = Conversation(self._runner, asked.sampled(self._llm), self._db_id, history=before)
        try:
            async with asyncio.timeout(self._limits.time_s):
                await talk.say(last["content"], tell)
        except TimeoutError:
            raise NoReply(504, f"no answer within {self._limits.time_s:g} s", "timeout") from None
        except Stopped as stopped:
            raise NoReply(502, str(stopped), "no_answer") from stopped
        except LLMFault as fault:
            raise NoReply(503, str(fault), fault.kind) from fault
        except Fault as fault:
            raise NoReply(500, str(fault), fault.kind) from fault
        finally:
            await talk.reset()
        return talk

    @property
    def name(self) -> str:
        """The model's name to clients."""
        return self._name


class _Turn:
    """One answer, begun: whole, or as it comes. Raises NoReply at the limit."""

    def __init__(self, api: AgentApi, asked: ChatRequest) -> None:
        self._asked = asked
        self._head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": api.name}
        self._told: asyncio.Queue[tuple[str, str] | None] = asyncio.Queue()
        self._task = api.begin(asked, lambda kind, text: self._told.put_nowait((kind, text)))
        self._task.add_done_callback(lambda _: self._told.put_nowait(None))

    async def whole(self) -> dict[str, Any]:
        """The reply in OpenAI's form: the text after the last call of a tool. Raises NoReply."""
        pieces: list[str] = []
        async for kind, text in self._pieces():
            if kind == "text":
                pieces.append(text)
            elif kind == "call":
                pieces.clear()
        talk = await self._task
        message = {"role": "assistant", "content": "".join(pieces)}
        choice = {"index": 0, "message": message, "finish_reason": _end(talk), "logprobs": None}
        reply = {**self._head, "object": "chat.completion", "choices": [choice], "usage": _usage(talk)}
        return {**reply, **self._calls(talk)}

    async def events(self) -> AsyncIterator[str]:
        """The reply as server-sent events; a fault is an event with `error`, and no [DONE] comes after it."""
        try:
            yield self._event({"role": "assistant", "content": ""})
            async for kind, text in self._pieces():
                if kind == "text":
                    yield self._event({"content": text})
            talk = await self._task
            yield self._event({}, finish_reason=_end(talk), **self._calls(talk))
            if self._asked.stream_options.include_usage:
                yield self._line({"choices": [], "usage": _usage(talk)})
            yield "data: [DONE]\n\n"
        except NoReply as no:
            yield f"data: {json.dumps(no.body)}\n\n"
        finally:
            self._task.cancel()

    async def _pieces(self) -> AsyncIterator[tuple[str, str]]:
        try:
            while (one := await self._told.get()) is not None:
                yield one
        finally:
            self._task.cancel()  # nothing is cancelled where it is done

    def _event(self, delta: dict[str, Any], *, finish_reason: str | None = None, **more: Any) -> str:
        return self._line({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}], **more})

    def _line(self, content: dict[str, Any]) -> str:
        return f"data: {json.dumps({**self._head, 'object': 'chat.completion.chunk', **content})}\n\n"

    def _calls(self, talk: Conversation) -> dict[str, Any]:
        if not self._asked.tool_calls:
            return {}
        sql = [call.model_dump(mode="json") for call in talk.answered.calls]
        return {"sql_calls": sql, "tool_calls": [call.model_dump(mode="json") for call in talk.answered.tool_calls]}


def _end(talk: Conversation) -> str:
    """OpenAI's word for why the last call ended: `length` at the limit of tokens, where one was sent."""
    limit, used = talk.llm.max_tokens, talk.answered.llm_calls[-1].completion_tokens or 0
    return "length" if limit and used >= limit else "stop"


def _usage(talk: Conversation) -> dict[str, int]:
    calls = talk.answered.llm_calls
    prompt = sum(call.prompt_tokens or 0 for call in calls)
    completion = sum(call.completion_tokens or 0 for call in calls)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
