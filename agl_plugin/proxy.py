"""agent-lightning's LLM proxy, which sends the store one span per LLM call.

LiteLLM writes seven spans per call, and only `raw_gen_ai_request` holds the token ids; the others cost the proxy and
the store more time than the update of a small model. They are dropped before they are sent, what is ready together is
sent together, and sending happens in a thread, not in the loop that serves requests. Nothing else is changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from agentlightning import llm_proxy
from agentlightning.llm_proxy import LightningOpenTelemetry, LightningSpanExporter, LLMProxy
from agentlightning.store.base import LightningStore
from litellm.integrations.opentelemetry import OpenTelemetry, OpenTelemetryConfig
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

CALL_SPAN = "raw_gen_ai_request"
SEND_EVERY_MS = 20


class PlainResource:
    """Makes resources of given attributes alone.

    opentelemetry's Resource.create looks through the entry points of all installed packages, for each span: a third of
    the proxy's CPU.
    """

    @staticmethod
    def create(attributes: dict[str, Any]) -> Resource:
        """A resource with these attributes."""
        return Resource(attributes)


class CallSpanExporter(OTLPSpanExporter):
    """Keeps the span of each call, and sends those that were kept."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, list[ReadableSpan]] = defaultdict(list)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep the call spans among `spans` for the address that is set now; the others are done with."""
        self._kept[self._endpoint] += [span for span in spans if span.name == CALL_SPAN]
        return SpanExportResult.SUCCESS

    def send(self) -> SpanExportResult:
        """Send what was kept, one request per address."""
        kept, self._kept, address = self._kept, defaultdict(list), self._endpoint
        results = []
        for self._endpoint, spans in kept.items():
            results += [super().export(spans)] if spans else []
        self._endpoint = address
        return next((result for result in results if result != SpanExportResult.SUCCESS), SpanExportResult.SUCCESS)


class CallExporter(LightningSpanExporter):
    """agent-lightning's exporter, which assigns spans to rollouts, with one request for all that is ready."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = CallSpanExporter()
        self._otlp_exporter = self._calls  # pyright: ignore[reportIncompatibleVariableOverride]

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Assign the spans of finished calls to their rollouts and send them. Called by one thread."""
        found = super().export(spans)
        sent = self._calls.send()
        return found if found != SpanExportResult.SUCCESS else sent


class CallTelemetry(LightningOpenTelemetry):
    """agent-lightning's telemetry callback with this exporter."""

    def __init__(self) -> None:
        # Not the parent's __init__: it makes the exporter that is replaced here.
        OpenTelemetry.__init__(self, config=OpenTelemetryConfig(exporter=CallExporter()))

    def _get_span_processor(self, dynamic_headers: dict[str, str] | None = None) -> BatchSpanProcessor:
        assert isinstance(self.OTEL_EXPORTER, SpanExporter)
        return BatchSpanProcessor(self.OTEL_EXPORTER, schedule_delay_millis=SEND_EVERY_MS)


def make_proxy(store: LightningStore, *, host: str, port: int) -> LLMProxy:
    """The LLM proxy of a run."""
    llm_proxy.Resource = PlainResource  # pyright: ignore[reportAttributeAccessIssue]
    return LLMProxy(host=host, port=port, model_list=[], store=store, callbacks=["return_token_ids", CallTelemetry])
