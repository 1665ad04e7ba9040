"""The address that episodes of one's own talk to: an OpenAI-compatible relay before the model's endpoint.

It is in between so that a foreign program cannot get a rollout wrong: calls are sampled as the run samples, whatever
the program asks for; they are counted, timed and written down; more than agent.max_turns are refused; a failure of the
model's endpoint is remembered, so that it is a fault even where the program swallows it; and calls of agents that
agent.match does not name go past the training. What a program may not ask for is refused by name
(foundation/chat_request.py). Agents are told apart by address: AGENT in BASE/agent/AGENT/v1.
Functions of agent.episode call the run's tools here, in BASE/tools/NAME; agents of agent-lightning 1.0 find that
framework's addresses of a rollout, and its events.
Guarantees: it listens on 127.0.0.1 only, at an address that is not guessed; answers pass unchanged but for hidden
control tokens (message_codec.py). Who asks for a stream gets the whole answer in that form. Covered are
/v1/chat/completions and /v1/models; what the model said stands in the context's messages.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import openai
from aiohttp import web

from foundation.background import LoopThread
from foundation.chat_request import NotAllowed
from foundation.files import writable
from foundation.http_local import application, as_stream, listening, refusal
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.message_codec import MessageCodec
from sql_agent.agent.policy_client import EndpointClient, overflow
from sql_agent.agent.tool import EpisodeContext, Tool, as_text
from sql_agent.errors import EpisodeFault, Fault, LLMFault
from sql_agent.records import StopReason

# Addresses of agent-lightning 1.0.
AGL_MODEL = "/proxy/rollout/{token}/attempt/{attempt}/mode/{mode}/openai"
AGL_EVENTS = "/api/rollouts/{token}/attempt/{attempt}/events"


@dataclass
class Session:
    """One episode's calls. `stop` is why the policy could not go on, `fault` why the endpoint could not."""

    llm: LLMEndpoint
    context: EpisodeContext
    max_turns: int
    timeout_s: float
    match: str = ""
    tools: dict[str, Tool] = field(default_factory=dict)
    n_begun: int = 0
    stop: StopReason | None = None
    fault: Fault | None = None
    token: str = field(default_factory=lambda: secrets.token_urlsafe(12))

    @cached_property
    def codec(self) -> MessageCodec:
        return MessageCodec(self.llm.marks)

    def rewarded(self, value: Any) -> None:
        """Note what the agent says that it earned; what is no number from 0 to 1 is its fault."""
        if isinstance(value, bool | int | float) and 0 <= value <= 1:
            self.context.reward = float(value)
        else:
            self.fault = EpisodeFault(f"the agent posted the reward {value!r:.100}; it must be a number from 0 to 1")


class Relay:
    """The relay of a process, in a loop of its own or in `loop`, which outlasts it. Make it after a fork."""

    def __init__(self, loop: LoopThread | None = None) -> None:
        self._worker, self._owns_worker = loop or LoopThread("relay"), loop is None
        self._sessions: dict[str, Session] = {}
        self._runner, self._port = self._worker.submit(self._started()).result(30)

    async def _started(self) -> tuple[web.AppRunner, int]:
        app = application()
        for prefix in ("/{token}", "/{token}/agent/{agent}", AGL_MODEL):
            app.router.add_post(prefix + "/v1/chat/completions", self._complete)
            app.router.add_get(prefix + "/v1/models", self._models)
        app.router.add_post("/{token}/tools/{name}", self._tool)
        app.router.add_post(AGL_EVENTS, self._event)
        return await listening(app, handler_cancellation=True)

    def open(self, session: Session) -> str:
        """Begin a session; the address of its agent, ending in /v1."""
        self._sessions[session.token] = session
        return f"http://127.0.0.1:{self._port}/{session.token}/v1"

    def agl_addresses(self, session: Session) -> dict[str, str]:
        """Where an agent of agent-lightning 1.0 finds the model of an open session, and where it posts its events."""
        base = f"http://127.0.0.1:{self._port}"
        ids = {"token": session.token, "attempt": "0", "mode": "train"}
        model, events = AGL_MODEL.format_map(ids), AGL_EVENTS.format_map(ids)
        return {"AGL_OPENAI_BASE_URL": f"{base}{model}/v1", "AGL_EVENT_URL": base + events}

    def end(self, session: Session) -> None:
        self._sessions.pop(session.token, None)

    def close(self) -> None:
        self._worker.submit(self._runner.cleanup()).result(10)
        if self._owns_worker:
            self._worker.close()

    def _session(self, request: web.Request) -> Session:
        if session := self._sessions.get(request.match_info["token"]):
            return session
        raise web.HTTPNotFound(text="this episode has ended")

    async def _models(self, request: web.Request) -> web.Response:
        session = self._session(request)
        return web.json_response({"object": "list", "data": [{"id": session.llm.model, "object": "model"}]})

    async def _tool(self, request: web.Request) -> web.Response:
        """A call of a tool by a function of agent.episode: its `arguments` as the model wrote them."""
        session = self._session(request)
        tool = session.tools.get(request.match_info["name"])
        try:
            arguments = str(json.loads(await request.read())["arguments"])
        except (ValueError, RecursionError, LookupError, TypeError) as exc:
            return refusal(400, f'send {{"arguments": "JSON as the model wrote it"}}: {exc!r:.200}')
        if tool is None:
            name = request.match_info["name"]
            names = ", ".join(session.tools) or "none"
            return refusal(404, f"there is no tool {name!r}; this episode has: {names}")
        try:
            return web.json_response({"text": await tool.invoke(session.context, arguments)})
        except Fault as fault:  # it stands in the context too
            return refusal(500, str(fault))

    async def _event(self, request: web.Request) -> web.Response:
        """An event of agent-lightning 1.0: a reward counts, the last one; others are taken and left."""
        session = self._session(request)
        try:
            body = json.loads(await request.read())
            kind, data = body["event_type"], body.get("data") or {}
            if kind == "reward":
                session.rewarded(data["value"])
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as exc:
            return refusal(422, f"an event is {{event_type, data}}, of a reward {{value}}: {exc!r:.200}")
        ids = {"rollout_id": session.token, "attempt_id": request.match_info["attempt"]}
        return web.json_response({"event_type": kind, "data": data, "timestamp": time.time(), **ids})

    async def _complete(self, request: web.Request) -> web.Response:
        session = self._session(request)
        try:
            body = json.loads(await request.read())
            body = body if isinstance(body, dict) else {}
            messages = session.codec.for_policy(body.get("messages"))
            payload = session.llm.request({**body, "messages": messages})
        except (ValueError, RecursionError):
            return refusal(400, "the body must be a JSON object")
        except NotAllowed as exc:
            return web.json_response(exc.body, status=400)
        if session.n_begun >= session.max_turns:
            session.stop = "max_turns"
            return refusal(400, f"agent.max_turns = {session.max_turns} LLM calls were made: give the answer now")
        session.n_begun += 1
        agent = request.match_info.get("agent", "")
        trained = not session.match or re.fullmatch(session.match, agent) is not None
        return await _answer(session, messages, payload, trained=trained)


async def _answer(session: Session, messages: list[Any], payload: dict[str, Any], *, trained: bool) -> web.Response:
    """Ask the endpoint, and write down what came of it."""
    base = session.llm.base_url if trained else session.llm.untrained_url or session.llm.base_url
    streams, usage = payload.pop("stream", False), payload.pop("stream_options", None) is not None
    started = time.time()
    try:
        async with EndpointClient(replace(session.llm, base_url=base), timeout_s=session.timeout_s) as client:
            answer: Any = await client.post("/chat/completions", body=payload, cast_to=object)
    except (openai.OpenAIError, LLMFault) as exc:
        return _refused(session, exc)
    session.context.n_untrained_calls += not trained
    _note(session.context, messages, answer, started=started)
    shown = _for_agent(session, answer)
    if streams:
        return web.Response(body=as_stream(shown, usage=usage), content_type="text/event-stream")
    return web.json_response(shown)


def _for_agent(session: Session, answer: dict[str, Any]) -> dict[str, Any]:
    choices = [
        {"index": n, **choice, "message": session.codec.for_agent(choice["message"])}
        for n, choice in enumerate(answer["choices"])
    ]
    return {**answer, "choices": choices}


def _refused(session: Session, exc: openai.OpenAIError | LLMFault) -> web.Response:
    """The endpoint's error as its agent gets it; what it means stands in the session."""
    try:
        session.stop = overflow(exc)
    except LLMFault as fault:
        session.fault = fault
    if isinstance(exc, openai.APIStatusError):
        return web.Response(status=exc.status_code, body=exc.response.content, content_type="application/json")
    return refusal(502, str(session.fault))


def _note(context: EpisodeContext, messages: list[Any], answer: dict[str, Any], *, started: float) -> None:
    """Write down what was asked at `started` (seconds since the epoch), and answered."""
    usage = answer.get("usage") or {}
    context.answered(
        started, prompt_tokens=usage.get("prompt_tokens"), completion_tokens=usage.get("completion_tokens")
    )
    context.messages = [*after_question(messages), plain(answer["choices"][0]["message"])]


def after_question(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """What was said after the first words of the user."""
    shown = [plain(message) for message in messages if isinstance(message, dict)]
    first = next((i for i, message in enumerate(shown) if message["role"] == "user"), -1)
    return shown[first + 1 :]


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """A message of OpenAI's API as transcripts have it."""
    content = message.get("content")
    text = "" if content is None else as_text(content)
    role = str(message.get("role") or "assistant")
    if role == "tool":
        return {"role": role, "tool_call_id": str(message.get("tool_call_id")), "content": writable(text)}
    calls = [
        {"id": str(call.get("id")), "name": str(body.get("name")), "arguments": writable(str(body.get("arguments")))}
        for call in message.get("tool_calls") or []
        if isinstance(body := call.get("function"), dict)
    ]
    return {"role": role, "content": writable(text), "tool_calls": calls}
