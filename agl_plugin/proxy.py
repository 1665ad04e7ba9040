"""agent-lightning's LLM proxy, which sends the store one span per LLM call.

LiteLLM writes seven spans per call, and only `raw_gen_ai_request` holds the token ids; the others cost the proxy and
the store more time than the update of a small model. They are dropped before they are sent, what is ready together is
sent together, and sending happens in a thread, not in the loop that serves requests. With `log_probs` the sampler is
asked for the log-probability of each token it sampled; they stand in the span as plain numbers, and the agent does not
see them. Nothing else is changed.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from agentlightning import llm_proxy
from agentlightning.llm_proxy import LightningOpenTelemetry, LightningSpanExporter, LLMProxy
from agentlightning.store.base import LightningStore
from litellm.integrations.custom_logger import CustomLogger
from litellm.integrations.opentelemetry import OpenTelemetry, OpenTelemetryConfig
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from agl_plugin.adapter import CALL_SPAN, LOG_PROBS
from agl_plugin.plain_log_probs import DIGITS, TOKEN_LOG_PROBS
from agl_plugin.plain_requests import send_plainly
from agl_plugin.processes import die_with_parent

# With the last one agl_plugin.plain_log_probs answers in its short form.
LOG_PROB_REQUEST = {"logprobs": True, "top_logprobs": 0, "return_tokens_as_token_ids": True}
HAS_LOG_PROBS = re.compile(r'"logprobs":\s*\{')
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


def with_plain_log_probs(response: str) -> str:
    """A chat completion with each choice's `logprobs`, in either form, as a list of numbers under `log_probs`."""
    tree = json.loads(response)
    for choice in tree.get("choices") or []:
        given = choice.pop("logprobs", None) or {}
        choice[LOG_PROBS] = given.get(TOKEN_LOG_PROBS) or [
            round(token["logprob"], DIGITS) for token in given.get("content") or []
        ]
    return json.dumps(tree, ensure_ascii=False)


class SamplerLogProbs(CustomLogger):
    """Asks the model server for log-probabilities where it samples, and keeps them from the agent.

    A greedy request (validation) is not trained on and is left as it is.
    """

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: Any
    ) -> dict[str, Any]:
        """LiteLLM's hook before a call."""
        return {**data, **LOG_PROB_REQUEST} if data.get("temperature") else data

    async def async_post_call_success_hook(self, data: dict[str, Any], user_api_key_dict: Any, response: Any) -> Any:
        """LiteLLM's hook before the answer is sent; the span is written from the server's own text."""
        for choice in getattr(response, "choices", []):
            choice.logprobs = None
        return response


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

    async def async_service_success_hook(self, *_args: Any, **_kwargs: Any) -> None:
        """Nothing: LiteLLM reports on its own parts in spans that the exporter drops."""

    def set_raw_request_attributes(self, span: Any, kwargs: Any, response_obj: Any) -> None:
        """The parent's, with log-probabilities in their short form."""
        response = kwargs.get("original_response")
        if isinstance(response, str) and HAS_LOG_PROBS.search(response):
            kwargs = {**kwargs, "original_response": with_plain_log_probs(response)}
        super().set_raw_request_attributes(span, kwargs, response_obj)


class RunProxy(LLMProxy):
    """agent-lightning's proxy, in a process that ends with the trainer's and sends plain requests."""

    @asynccontextmanager
    async def _serve_context(self) -> AsyncIterator[None]:
        die_with_parent()
        send_plainly()
        async with super()._serve_context():
            yield


def make_proxy(store: LightningStore, *, host: str, port: int, log_probs: bool = False) -> LLMProxy:
    """The LLM proxy of a run. `log_probs` asks for the log-probability of each sampled token."""
    llm_proxy.Resource = PlainResource  # pyright: ignore[reportAttributeAccessIssue]
    more = [SamplerLogProbs] if log_probs else []
    return RunProxy(
        host=host, port=port, model_list=[], store=store, callbacks=["return_token_ids", *more, CallTelemetry]
    )
