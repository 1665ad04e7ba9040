"""The agent behind one OpenAI-compatible address: chat completions and responses (plain and streamed), models,
feedback, health.

Guarantees: no state from one request to the next: the client's messages are the history, the system prompt and the
tools are the configuration's; a fault of model, database or tool is an error reply, never an answer; a key that is not
known is refused by name. The client's sampling keys count in each call of the model. agent_request.py says what may be
asked, agent_answer.py makes the answer, agent_reply.py sends it, kept.py writes what is to be kept. Not covered:
agent.context, episodes of one's own, several answers, log-probabilities.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from foundation.errors import AgentGRPOError, UserError, problems_of
from foundation.http_gate import RETRY_AFTER_S, Gate, RequestMetrics, Traffic
from sql_agent.agent.conversation import Stopped, Tell
from sql_agent.errors import Fault, LLMFault
from sql_agent.serving.agent_answer import Answer, Answerer
from sql_agent.serving.agent_reply import ChatReply, ResponseReply
from sql_agent.serving.agent_request import ChatRequest, ResponseRequest
from sql_agent.serving.kept import Feedback, Keeper

PATHS = frozenset({"/health", "/metrics", "/v1/models", "/v1/chat/completions", "/v1/responses", "/v1/feedback"})

logger = logging.getLogger(__name__)
INVALID = "invalid_request_error"
type Reply = ChatReply | ResponseReply


@dataclass(frozen=True)
class Limits:
    """What one server takes."""

    max_open: int = 256
    time_s: float = 300.0
    max_body_bytes: int = 1 << 20
    body_timeout_s: float = 30.0


class NoReply(AgentGRPOError):
    """Why there is no answer, as a status and OpenAI's error object."""

    def __init__(self, status: int, text: str, kind: str) -> None:
        super().__init__(text)
        self.code = status
        self.kind = kind

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"message": str(self), "type": self.kind, "param": None, "code": self.code}}


async def _no_reply(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, NoReply)
    headers = {"Retry-After": str(RETRY_AFTER_S)} if exc.code in (429, 503, 504) else {}
    return JSONResponse(exc.body, status_code=exc.code, headers=headers)


async def _no_route(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    text = f"{request.method} {request.url.path[:80]}: {exc.detail}; there are {', '.join(sorted(PATHS))}"
    return JSONResponse(NoReply(exc.status_code, text, INVALID).body, exc.status_code, exc.headers)


def _parsed[T: BaseModel](kind: type[T], body: bytes) -> T:
    """Raises NoReply naming what does not fit."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as exc:
        raise NoReply(400, problems_of(exc, most=1, whole="body"), INVALID) from None


class AgentApi:
    """The routes over one agent. `name` is the model's name to clients."""

    def __init__(self, answerer: Answerer, *, name: str, limits: Limits, keeper: Keeper | None = None) -> None:
        runner, vote = answerer.runner, answerer.vote
        if runner.config.agent.context != "keep":
            raise UserError(
                f"agent.context = {runner.config.agent.context!r}: a served agent keeps its history; set keep"
            )
        if custom := runner.config.agent.custom_episode:
            raise UserError(
                f"{custom} plays one question an episode and cannot be served; serve an agent of agent.tools"
            )
        if vote > 1 and not answerer.llm.temperature:
            raise UserError(
                f"serve.vote = {vote} with rollout.evaluation.temperature = 0: so many answers would be the same; set "
                "the temperature above 0, or serve.vote = 0"
            )
        if keeper and runner.toolset.kinds:
            raise UserError("serve.keep: environments tell the model what is in no message; leave it out")
        self._answerer, self._name, self._limits, self._keeper = answerer, name, limits, keeper
        self._open = set[asyncio.Future[Answer]]()
        self.metrics = RequestMetrics("agent_api")

    def app(self, traffic: Traffic, *, token: str) -> Starlette:
        gate = Middleware(
            Gate,
            token=token,
            open_paths=frozenset({"/health"}),
            known_paths=PATHS,
            max_body_bytes=self._limits.max_body_bytes,
            body_timeout_s=self._limits.body_timeout_s,
            metrics=self.metrics,
            traffic=traffic,
            error_body=lambda status, text: NoReply(status, text, INVALID if status < 500 else "overloaded").body,
        )
        routes = [
            Route("/health", self._health),
            Route("/metrics", self._metrics),
            Route("/v1/models", self._models),
            Route("/v1/chat/completions", partial(self._reply, kind=ChatRequest, form=ChatReply), methods=["POST"]),
            Route("/v1/responses", partial(self._reply, kind=ResponseRequest, form=ResponseReply), methods=["POST"]),
            Route("/v1/feedback", self._feedback, methods=["POST"]),
        ]
        faults = {HTTPException: _no_route, NoReply: _no_reply}
        return Starlette(routes=routes, middleware=[gate], exception_handlers=faults)

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _metrics(self, _: Request) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def _models(self, _: Request) -> Response:
        model = {"id": self._name, "object": "model", "created": 0, "owned_by": "agentgrpo"}
        return JSONResponse({"object": "list", "data": [model]})

    async def _reply(self, request: Request, kind: type[ChatRequest | ResponseRequest], form: type[Reply]) -> Response:
        chat = self._checked(_parsed(kind, await request.body()).chat)
        turn = _Turn(self, chat, form(chat))
        if chat.stream:
            return StreamingResponse(turn.events(), media_type="text/event-stream")
        return JSONResponse(await turn.body())

    async def _feedback(self, request: Request) -> Response:
        feedback = _parsed(Feedback, await request.body())
        if not self._keeper:
            raise NoReply(404, "nothing is kept here: set serve.keep", INVALID)
        try:
            left_out = await asyncio.wrap_future(self._keeper.feedback(feedback))
        except OSError as exc:
            raise NoReply(500, f"the feedback was not kept: {exc.strerror}", "not_kept") from exc
        return JSONResponse({"id": feedback.id, "score": feedback.score, **({"answer": left_out} if left_out else {})})

    def _checked(self, chat: ChatRequest) -> ChatRequest:
        if chat.model != self._name:
            raise NoReply(404, f"model {chat.model[:80]!r}: there is {self._name!r}", INVALID)
        if chat.messages[-1].role != "user":
            raise NoReply(400, "the last message must be the user's", INVALID)
        if chat.store and not self._keeper:
            raise NoReply(400, "store: nothing is kept here; leave it out", INVALID)
        if chat.temperature == 0 and self._answerer.vote > 1:
            raise NoReply(
                400, f"temperature: {self._answerer.vote} answers vote here, which 0 makes all the same", INVALID
            )
        return chat

    def begin(self, chat: ChatRequest, tell: Tell) -> asyncio.Future[Answer]:
        """The answer, begun; it counts as in flight until it is done. Raises NoReply at the limit."""
        if len(self._open) >= self._limits.max_open:
            raise NoReply(429, f"{len(self._open)} conversations are in flight, which is the limit", "overloaded")
        task = asyncio.ensure_future(self._answer(chat, tell))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        return task

    async def _answer(self, chat: ChatRequest, tell: Tell) -> Answer:
        """Raises NoReply."""
        try:
            async with asyncio.timeout(self._limits.time_s):
                return await self._answerer.answer(chat, tell)
        except TimeoutError:
            raise NoReply(504, f"no answer within {self._limits.time_s:g} s", "timeout") from None
        except Stopped as stopped:
            status, kind = (400, INVALID) if stopped.is_too_long else (502, "no_answer")
            raise NoReply(status, str(stopped), kind) from stopped
        except LLMFault as fault:
            raise NoReply(503, str(fault), fault.kind) from fault
        except Fault as fault:
            raise NoReply(500, str(fault), fault.kind) from fault
        except Exception as exc:  # a client library's too, as when a connection dies while it is made
            logger.exception("an answer failed")
            raise NoReply(500, f"the agent failed ({type(exc).__name__}); its log says more", "internal_error") from exc

    def keep(self, name: str, chat: ChatRequest, answer: Answer) -> None:
        """Keep an answered conversation, where the configuration and its client let it."""
        if self._keeper and chat.store is not False:
            db_id = self._answerer.db_id
            about = {"id": name, "model": self._name, "db_id": db_id, "prompt": self._answerer.runner.prompt_for(db_id)}
            self._keeper.conversation(about, chat.plain_messages, answer.chosen)


class _Turn:
    """One answer, begun: whole, or as it comes. Raises NoReply at the limit."""

    def __init__(self, api: AgentApi, chat: ChatRequest, reply: Reply) -> None:
        self._api, self._chat, self._reply = api, chat, reply
        self._unsent: list[tuple[str, str]] = []
        self._news = asyncio.Event()
        self._task = api.begin(chat, self._tell)
        self._task.add_done_callback(lambda _: self._news.set())

    def _tell(self, kind: str, text: str) -> None:
        self._unsent.append((kind, text))
        self._news.set()

    async def body(self) -> dict[str, Any]:
        """The reply's body. Raises NoReply."""
        try:
            return self._reply.body(await self._answer())
        finally:
            self._task.cancel()  # nothing is cancelled where it is done

    async def events(self) -> AsyncIterator[str]:
        """The reply as server-sent events; text that came since the last one is one event."""
        try:
            yield "".join(self._reply.begin())
            while self._unsent or not self._task.done():
                await self._news.wait()
                self._news.clear()
                pieces, self._unsent = self._unsent, []
                lines: list[str] = []
                for kind, texts in itertools.groupby(pieces, key=itemgetter(0)):
                    lines.extend(self._reply.tell(kind, "".join(text for _, text in texts)))
                if lines:
                    yield "".join(lines)
            yield "".join(self._reply.end(await self._answer()))
        except NoReply as exc:
            yield self._reply.fault(exc.body)
        finally:
            self._task.cancel()

    async def _answer(self) -> Answer:
        answer = await self._task
        self._api.keep(self._reply.id, self._chat, answer)
        return answer
