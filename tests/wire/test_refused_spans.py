"""A real store, and the exporter of the LLM proxy: a call of a rollout that it does not know costs no other its ids."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import agentlightning as agl
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult

from agl_plugin.proxy.llm_proxy import ATTEMPT_NAMES, CallSpanExporter
from agl_plugin.proxy.spans import CALL_SPAN
from foundation.net import free_port

TRIES_OF_OTLP_S = 3.0  # it would wait 1 and 2 s before its second and third


def call_of(whose: tuple[str, str], n: int) -> ReadableSpan:
    """The span of a call, as agent-lightning's exporter hands it on."""
    names = dict(zip(ATTEMPT_NAMES, whose, strict=True))
    resource = Resource({**names, "agentlightning.span_sequence_id": n})
    span = TracerProvider(resource=resource).get_tracer("proxy").start_span(CALL_SPAN)
    span.set_attribute("call", n)
    span.end()
    assert isinstance(span, ReadableSpan)
    return span


async def with_store(work: Callable[[Any], Awaitable[None]]) -> None:
    """Run `work` with a store that listens."""
    store = agl.LightningStoreServer(agl.InMemoryLightningStore(), host="127.0.0.1", port=free_port())
    await store.start()
    try:
        await work(store)
    finally:
        await store.stop()


def test_spans_of_strangers_cost_themselves_alone() -> None:
    async def work(store: Any) -> None:
        known = [await store.start_rollout(input={"n": n}) for n in range(3)]
        ids = [(rollout.rollout_id, rollout.attempt.attempt_id) for rollout in known]
        strangers = [("ro-none", "at-none"), (ids[0][0], "at-none")]
        calls = [ids[0], strangers[0], ids[1], ids[1], strangers[1], ids[2], ids[0]]
        exporter = CallSpanExporter()
        exporter._endpoint = store.otlp_traces_endpoint()
        exporter.export([call_of(whose, n) for n, whose in enumerate(calls)])
        started_s = time.monotonic()
        assert await asyncio.to_thread(exporter.send) == SpanExportResult.FAILURE
        assert time.monotonic() - started_s < TRIES_OF_OTLP_S
        for known_one in ids:
            stored = [span.attributes["call"] for span in await store.query_spans(known_one[0])]
            assert stored == [n for n, whose in enumerate(calls) if whose == known_one]
        exporter.export([call_of(ids[2], 7)])
        assert await asyncio.to_thread(exporter.send) == SpanExportResult.SUCCESS

    asyncio.run(with_store(work))
