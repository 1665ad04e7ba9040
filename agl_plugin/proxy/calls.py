"""The gateway's work on one request: from the agent to a model server and back, and its span to the store.

Guarantees: the calls of a rollout go to one address, where their prompt's beginning is in the prefix cache: at first to
the one with the fewest calls in flight, and elsewhere once it has `per_engine` or takes no connections. Where all are
full (without it MOST_CALLS in all) calls wait, and none is refused for being too many. Each has a connection of its
own, since a model server may close one that is kept just as a call is sent; one that cannot be made is tried again,
there or elsewhere, for CONNECT_S, and nothing is sent twice. An address without connections rests while others have
them, and one call in REST_S looks whether it is back. A body that has not come within BODY_S is refused, and stands in
nobody's way until then. A stream that breaks off breaks off for the agent too, and one of which the agent reads nothing
for UNREAD_S is broken off. What an agent no longer waits for is waited for all the same, so that the gate counts what
the model server works on. An answer does not wait until the store has its span (span_writer.py).
Bodies above MAX_BODY_BYTES, what is no JSON object, models that are not known and keys that no agent may ask for
(foundation/chat_request.py) are refused. How long a model server takes has no limit here: agents have theirs.
"""

from __future__ import annotations

import asyncio
import functools
import io
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import orjson
from agentlightning.store.base import LightningStore
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from agl_plugin.proxy.answers import Collected, Json, Request
from agl_plugin.proxy.gate import ALIVE_PATH, GONE, REFUSED, Gate, error_body
from agl_plugin.proxy.span_writer import CallSpan, SpanWriter
from agl_plugin.proxy.spans import WEIGHTS
from agl_plugin.proxy.tokens import Packer
from foundation.chat_request import NotAllowed, allowed
from foundation.errors import AgentGRPOError
from foundation.http_body import BodyRefused, body_of
from foundation.http_local import as_stream

logger = logging.getLogger(__name__)

CALL_PATH = re.compile(
    # Also in the form of agent-lightning 1.0: /proxy/rollout/ID/attempt/ID/mode/train/openai/v1/chat/completions.
    r"(?:(?:/proxy)?/rollout/(?P<rollout>[^/]+)/attempt/(?P<attempt>[^/]+)(?:/mode/(?:train|val)/openai)?)?(?:/v1)?"
    r"/(?P<what>chat/completions|models)"
)
ALIVE_PATHS = (ALIVE_PATH, "/health", "/health/readiness")
MAX_BODY_BYTES = 32 * 2**20
MOST_CALLS = 1024
MOST_HOMES = 2**17  # rollouts whose address is remembered
BODY_S = 30.0
CONNECT_S, TRY_S, PAUSE_S, REST_S = 10.0, 2.5, 0.1, 1.0
UNREAD_S = 15.0  # less than the trainer waits for the gate
NOT_CONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
ODD = (ValueError, LookupError, TypeError, AttributeError)  # what reading a completion of another form raises
LONGEST_EVENT_BYTES = 4 * 2**20  # the first of a stream holds the prompt's token ids
LARGE_BODY_BYTES = 2**20  # aiohttp sends such bytes in one piece, and warns


class CallError(AgentGRPOError):
    """An answer that the gateway gives itself."""

    def __init__(
        self, status: int, message: str, *, kind: str = "invalid_request_error", body: Json | None = None
    ) -> None:
        super().__init__(message)
        self.reply = JSONResponse(body or error_body(message, kind=kind, status=status), status)


@dataclass
class Address:
    """A model server, and how many calls it works on."""

    url: str
    is_far: bool = False  # on another machine than this gateway
    in_flight: int = 0
    last_used: int = 0
    rests_until_s: float = 0.0  # in time.monotonic(); above 0: no connection could be made the last time


class Metrics:
    """What GET /metrics shows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.calls = Counter("gateway_calls", "answered calls", ["status"], registry=self.registry)
        self.seconds = Histogram("gateway_call_seconds", "from request to answer", registry=self.registry)
        self.in_flight = Gauge("gateway_in_flight", "calls at a model server", ["address"], registry=self.registry)
        self.retries = Counter("gateway_connection_retries", "connections tried again", registry=self.registry)
        self.spans = Counter("gateway_spans", "spans of calls", ["outcome"], registry=self.registry)
        self.cut = Counter("gateway_incomplete_streams", "streams without all token ids", registry=self.registry)
        self.weights = Gauge("gateway_weights_version", "updates that the weights have seen", registry=self.registry)


class Calls:
    """The gateway as an ASGI application. It knows one `model`, whose servers are at the `addresses`."""

    def __init__(self, *, gate: Gate, log_probs: bool, per_engine: int = 0, packs: bool = False) -> None:
        self.gate, self.log_probs, self.per_engine, self.metrics = gate, log_probs, per_engine, Metrics()
        self.packs = packs
        self.model, self.addresses = "", list[Address]()
        self.metrics.weights.set_function(lambda: gate.weights)
        self._n_used = 0
        self._homes: dict[str, Address] = {}

    def route(self, model: str, addresses: list[Address]) -> None:
        self.model, self.addresses = model, addresses
        self._homes.clear()
        self.metrics.in_flight.clear()
        for address in addresses:
            self.metrics.in_flight.labels(address.url).set_function(functools.partial(getattr, address, "in_flight"))

    @asynccontextmanager
    async def serving(self, store: LightningStore) -> AsyncIterator[None]:
        """What is there while the server runs: connections, and the way to the store."""
        self._room = asyncio.Semaphore(self.per_engine * len(self.addresses) or MOST_CALLS)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=TRY_S)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=LONGEST_EVENT_BYTES) as http,
            SpanWriter(store, http, counts=self.metrics.spans).running() as spans,
        ):
            self._http, self._spans, self._packer = http, spans, Packer()
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                reply = await self._reply(scope, receive, send)
            except CallError as exc:
                reply = exc.reply
            if reply:
                await reply(scope, receive, send)

    async def _reply(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        """The answer to a request; None where it was sent already."""
        path = scope["path"]
        if path in ALIVE_PATHS:
            return JSONResponse({"status": "ok"})
        if path == "/metrics":
            return Response(generate_latest(self.metrics.registry), media_type=CONTENT_TYPE_LATEST)
        route = CALL_PATH.fullmatch(path)
        if route and route["what"] == "models" and scope["method"] == "GET":
            return JSONResponse({"object": "list", "data": [{"id": self.model, "object": "model"}]})
        if not route or route["what"] == "models" or scope["method"] != "POST":
            raise CallError(
                404,
                f"{scope['method']} {path}: the gateway serves POST /v1/chat/completions and GET /v1/models, also "
                'below /rollout/ID/attempt/ID. rollout.proxy = "litellm" serves more',
            )
        started = time.perf_counter()
        status = 500
        try:
            reply = await self._call(route["rollout"], route["attempt"], receive, send)
            status = reply.status_code if reply else 200
            return reply
        except CallError as exc:
            status = exc.reply.status_code
            raise
        finally:
            self.metrics.calls.labels(str(status)).inc()
            self.metrics.seconds.observe(time.perf_counter() - started)

    async def _call(self, rollout: str | None, attempt: str | None, receive: Receive, send: Send) -> Response | None:
        body = await body_in_time(receive)
        async with self._room:
            pack = functools.partial(self._packer.packed, (rollout, attempt)) if self.packs and rollout else None
            request = Request(requested(body), self.log_probs, rollout or "", pack)
            async with self.gate.call() as passes:
                if not passes:
                    return JSONResponse(REFUSED, GONE)
                start_ns = time.time_ns()
                reply, notes = await self._answered(request, send)
                weights = self.gate.weights
            if notes and rollout and attempt:
                notes[WEIGHTS] = weights
                await self._spans.add(CallSpan(rollout, attempt, start_ns, time.time_ns(), notes))
            if isinstance(reply, bytes):
                return await send({"type": "http.response.body", "body": reply})
            return reply

    async def _answered(self, request: Request, send: Send) -> tuple[Response | bytes | None, Json | None]:
        """What the agent still gets (of a stream its end), and the attributes of the span, where there are any."""
        try:
            async with self._response(request) as response:
                if response.status != 200:
                    return Response(await response.read(), response.status, media_type=response.content_type), None
                if response.content_type == "text/event-stream":
                    return await self._pass_on(request, response, send)
                content = await response.read()
                answer = parsed(content, "the model server's answer", status=502, decode=read_answer)
        except (aiohttp.ClientError, OSError, TimeoutError) as exc:
            why = f"{type(exc).__name__}: {exc}"
            raise CallError(502, f"the model server broke the call off ({why})", kind="server_error") from exc
        try:
            return whole_reply(request, answer)
        except ODD as exc:
            why = f"the model server answered no completion ({exc!r}): {str(answer)[:300]}"
            raise CallError(502, why, kind="server_error") from exc

    @asynccontextmanager
    async def _response(self, request: Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """The model server's response; the call counts at its address until it was read."""
        name = request.body.get("model")
        if name != self.model:
            raise CallError(400, f"model {name!r}: the gateway knows {self.model}")
        address, response = await self._sent(request)
        try:
            async with response:
                yield response
        finally:
            address.in_flight -= 1

    async def _sent(self, request: Request) -> tuple[Address, aiohttp.ClientResponse]:
        """Send to the rollout's address; where no connection can be made, to the next, for CONNECT_S."""
        deadline, untried = time.monotonic() + CONNECT_S, list(self.addresses)
        body = json.dumps(request.asking()).encode()
        headers = {"Content-Type": "application/json"}
        while True:
            address = self._next_of(untried, request.rollout)
            address.in_flight += 1
            try:
                data = body if len(body) < LARGE_BODY_BYTES else io.BytesIO(body)
                response = await self._http.post(address.url, data=data, headers=headers, allow_redirects=False)
                address.rests_until_s = 0.0
                return address, response
            except BaseException as exc:
                address.in_flight -= 1
                if not isinstance(exc, NOT_CONNECTED) or time.monotonic() > deadline:
                    raise
            address.rests_until_s = time.monotonic() + REST_S
            self.metrics.retries.inc()
            untried.remove(address)
            if not untried:
                untried = list(self.addresses)
                await asyncio.sleep(PAUSE_S)

    def _next_of(self, addresses: Sequence[Address], rollout: str) -> Address:
        """The rollout's own, unless it is full; else one of this machine, the one with the fewest calls, and of those
        the one that was asked longest ago; one that rests at last."""
        now = time.monotonic()
        home = self._homes.pop(rollout, None)
        most = self.per_engine or MOST_CALLS

        def rank(candidate: Address) -> tuple[float, ...]:
            return (
                candidate.rests_until_s > now,
                candidate.in_flight >= most,
                candidate is not home,
                candidate.is_far,
                candidate.in_flight,
                candidate.last_used,
            )

        address = min(addresses, key=rank)
        if rollout:
            self._homes[rollout] = address  # behind the others
            if len(self._homes) > MOST_HOMES:
                del self._homes[next(iter(self._homes))]
        self._n_used += 1
        address.last_used = self._n_used
        if address.rests_until_s:
            address.rests_until_s = now + REST_S
        return address

    async def _pass_on(
        self, request: Request, response: aiohttp.ClientResponse, send: Send
    ) -> tuple[bytes | None, Json | None]:
        """A stream, event by event, to the agent. One that breaks off has no span, and its connection is closed."""
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        whole = Collected()
        try:
            async for line in response.content:
                if event := request.event(line, whole):
                    async with asyncio.timeout(UNREAD_S):
                        await send({"type": "http.response.body", "body": event, "more_body": True})
        except TimeoutError:
            logger.warning("an agent read nothing of a stream for %.0f s: broken off", UNREAD_S)
            self.metrics.cut.inc()
            return None, None
        except (aiohttp.ClientError, OSError, *ODD) as exc:
            logger.warning("a model server broke off a stream: %s: %s", type(exc).__name__, exc)
            self.metrics.cut.inc()
            return None, None
        if not whole.complete:
            self.metrics.cut.inc()
        return whole.end, request.notes(whole.answer)


def whole_reply(request: Request, answer: Json) -> tuple[Response, Json]:
    """What the agent gets of an answer that was no stream, and the attributes of the span. Raises one of ODD."""
    choices = answer["choices"]
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise ValueError("choices is no list of objects")
    notes = request.notes(answer)
    if request.body.get("stream"):
        events = as_stream(request.strip(answer), usage=request.wants_usage)
        return Response(events, media_type="text/event-stream"), notes
    return Response(json.dumps(request.strip(answer)), media_type="application/json"), notes


async def body_in_time(receive: Receive) -> bytes:
    """A request's body. Raises CallError."""
    try:
        body = await body_of(receive, most_bytes=MAX_BODY_BYTES, within_s=BODY_S)
    except BodyRefused as no:
        raise CallError(no.code, str(no)) from no
    if body is None:
        raise CallError(400, "the request ended before its body")
    return body


def requested(body: bytes) -> Json:
    """What a request's body asks for. Raises CallError for what it may not ask for."""
    try:
        return allowed(parsed(body))
    except NotAllowed as exc:
        raise CallError(400, str(exc), body=exc.body) from exc


def read_answer(text: bytes) -> object:
    """JSON in a third of the time of Python's reader, which reads what is left: half characters, numbers like NaN."""
    try:
        return orjson.loads(text)
    except ValueError:
        return json.loads(text)


def parsed(
    text: bytes, name: str = "the request's body", *, status: int = 400, decode: Callable[[bytes], object] = json.loads
) -> Json:
    """A JSON object. Raises CallError."""
    try:
        value = decode(text)
    except (ValueError, RecursionError) as exc:
        raise CallError(status, f"{name} is not JSON ({type(exc).__name__}: {str(exc)[:100]})") from exc
    if not isinstance(value, dict):
        raise CallError(status, f"{name} is {type(value).__name__} in JSON, and must be an object")
    return value
