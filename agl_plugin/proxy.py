"""agent-lightning's LLM proxy, which sends the store one span per LLM call.

LiteLLM writes seven spans per call, and only `raw_gen_ai_request` holds the token ids; the others cost the proxy and
the store more time than the update of a small model. They are dropped before they are sent, and sending happens in a
thread, not in the loop that serves requests. Nothing else of the proxy is changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentlightning.llm_proxy import LightningOpenTelemetry, LightningSpanExporter, LLMProxy
from agentlightning.store.base import LightningStore
from litellm.integrations.opentelemetry import OpenTelemetry, OpenTelemetryConfig
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

CALL_SPAN = "raw_gen_ai_request"
SEND_EVERY_MS = 20


class CallSpanExporter(OTLPSpanExporter):
    """Sends only the span of the call itself."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send the call spans among `spans`; the other spans of the call are done with."""
        calls = [span for span in spans if span.name == CALL_SPAN]
        return super().export(calls) if calls else SpanExportResult.SUCCESS


class CallTelemetry(LightningOpenTelemetry):
    """agent-lightning's telemetry callback with this exporter."""

    def __init__(self) -> None:
        exporter = LightningSpanExporter()
        exporter._otlp_exporter = CallSpanExporter()  # pyright: ignore[reportAttributeAccessIssue]
        # Not the parent's __init__: it makes the exporter that is replaced here.
        OpenTelemetry.__init__(self, config=OpenTelemetryConfig(exporter=exporter))

    def _get_span_processor(self, dynamic_headers: dict[str, str] | None = None) -> BatchSpanProcessor:
        assert isinstance(self.OTEL_EXPORTER, SpanExporter)
        return BatchSpanProcessor(self.OTEL_EXPORTER, schedule_delay_millis=SEND_EVERY_MS)


def make_proxy(store: LightningStore, *, host: str, port: int) -> LLMProxy:
    """The LLM proxy of a run."""
    return LLMProxy(host=host, port=port, model_list=[], store=store, callbacks=["return_token_ids", CallTelemetry])
