"""Sends the spans of LLM calls to the store, many in one request.

Guarantees: the store numbers spans as they come, those sent together in the order of their starts. No call waits for
its span: who reads a rollout waits until it has as many as the rollout's calls, as the daemon does. Spans are kept and
sent again, and calls wait once MOST_WAITING are kept; at the end what is kept is sent. A span that the store refuses
(of an attempt it does not know) takes no other with it. One that could not be sent within GIVE_UP_S is lost, counted
and logged: its rollout is left out for missing ids.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from agentlightning.semconv import LightningResourceAttributes as Names
from agentlightning.store.base import LightningStore
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Status
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from prometheus_client import Counter

from agl_plugin.proxy.spans import CALL_SPAN
from foundation.errors import AgentGRPOError
from foundation.grouping import grouped
from foundation.store_token import token_headers

logger = logging.getLogger(__name__)

GATHER_S = 0.02  # to send together what comes together
MOST_AT_ONCE, MOST_WAITING = 256, 4096
GIVE_UP_S, PAUSE_S = 60.0, 0.2  # a store that was killed may be started again
ONE_REQUEST = aiohttp.ClientTimeout(total=GIVE_UP_S / 2)  # a store that hangs, or whose machine is gone
PROTOBUF = {"Content-Type": "application/x-protobuf"}


@dataclass(frozen=True)
class CallSpan:
    """The span of a call that was answered. Times are nanoseconds since 1970."""

    rollout_id: str
    attempt_id: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    ids: bytes = field(default_factory=lambda: os.urandom(24))  # of trace and span: the same when it is sent again


class Refused(AgentGRPOError):
    """The store does not take this request, and would not take it another time."""


class SpanWriter:
    """`counts` gets `outcome`: stored, refused or lost."""

    def __init__(self, store: LightningStore, http: aiohttp.ClientSession, *, counts: Counter) -> None:
        self._http, self._counts = http, counts
        self._url = store.otlp_traces_endpoint()
        self._headers = PROTOBUF | token_headers()
        self._waiting = asyncio.Queue[CallSpan](MOST_WAITING)

    async def add(self, span: CallSpan) -> None:
        await self._waiting.put(span)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[SpanWriter]:
        """Send from now on; at the end what is left."""
        task = asyncio.create_task(self._run())
        try:
            yield self
        finally:
            with suppress(TimeoutError):  # _run has counted what it gave up
                await asyncio.wait_for(self._waiting.join(), GIVE_UP_S)
            task.cancel()

    async def _run(self) -> None:
        while True:
            spans = [await self._waiting.get()]
            await asyncio.sleep(GATHER_S)
            while len(spans) < MOST_AT_ONCE and not self._waiting.empty():
                spans.append(self._waiting.get_nowait())
            spans.sort(key=lambda span: span.start_ns)  # the store numbers them as they come
            try:
                await self._send(spans)
            except Exception:
                self._count(spans, "lost", "they could not be sent")
            finally:
                for _ in spans:
                    self._waiting.task_done()

    async def _send(self, spans: Sequence[CallSpan]) -> None:
        """Send together; where the store refuses, by halves, down to the attempt that it does not take."""
        try:
            await self._send_until_taken(spans)
            self._counts.labels("stored").inc(len(spans))
        except Refused as exc:
            attempts = list(grouped(spans, lambda span: (span.rollout_id, span.attempt_id)).values())
            if len(attempts) == 1:
                self._count(spans, "refused", str(exc))
                return
            middle = len(attempts) // 2
            for half in (attempts[:middle], attempts[middle:]):
                await self._send(list(itertools.chain.from_iterable(half)))

    async def _send_until_taken(self, spans: Sequence[CallSpan]) -> None:
        deadline = time.monotonic() + GIVE_UP_S
        while True:
            try:
                return await self._post(spans)
            except (aiohttp.ClientError, OSError, TimeoutError):
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def _post(self, spans: Sequence[CallSpan]) -> None:
        body = ExportTraceServiceRequest(resource_spans=[on_the_wire(span) for span in spans]).SerializeToString()
        async with self._http.post(self._url, data=body, headers=self._headers, timeout=ONE_REQUEST) as response:
            if response.status < 300:
                return
            text = (await response.text())[:300]
            # agent-lightning's store answers 500 for a rollout that it does not know.
            kind = aiohttp.ClientError if response.status in (429, 502, 503, 504) else Refused
            raise kind(f"{response.status} {text}")

    def _count(self, spans: Sequence[CallSpan], outcome: str, why: str) -> None:
        self._counts.labels(outcome).inc(len(spans))
        names = sorted({span.rollout_id for span in spans})
        logger.warning(
            "%d spans of rollouts %s %s: %s", len(spans), names[:5], outcome, why, exc_info=outcome == "lost"
        )


def on_the_wire(span: CallSpan) -> ResourceSpans:
    """In OpenTelemetry's form, without a number: the store gives it the next of its rollout."""
    ids = {Names.ROLLOUT_ID: span.rollout_id, Names.ATTEMPT_ID: span.attempt_id}
    wire = WireSpan(
        trace_id=span.ids[:16],
        span_id=span.ids[16:],
        name=CALL_SPAN,
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
        status=Status(code=Status.STATUS_CODE_OK),
        attributes=[_pair(*item) for item in span.attributes.items()],
    )
    resource = Resource(attributes=[_pair(name.value, value) for name, value in ids.items()])
    return ResourceSpans(resource=resource, scope_spans=[ScopeSpans(spans=[wire])])


def _pair(key: str, value: Any) -> KeyValue:
    if isinstance(value, bool):
        any_value = AnyValue(bool_value=value)
    elif isinstance(value, int) and -(2**63) <= value < 2**63:
        any_value = AnyValue(int_value=value)
    elif isinstance(value, float):
        any_value = AnyValue(double_value=value)
    else:
        any_value = AnyValue(string_value=_text(value))
    return KeyValue(key=_text(key), value=any_value)


def _text(value: Any) -> str:
    """With half characters, which JSON can hold and protobuf refuses, as their escapes."""
    return str(value).encode(errors="backslashreplace").decode()
