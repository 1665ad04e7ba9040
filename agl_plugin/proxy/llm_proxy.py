"""agent-lightning's LLM proxy, which sends the store one span per LLM call.

LiteLLM writes seven spans per call, and only `raw_gen_ai_request` holds the token ids; the others cost the proxy and
the store more time than the update of a small model. They are dropped before they are sent, what is ready together is
sent together, and sending happens in a thread, not in the loop that serves requests. The store refuses all that came
together for one rollout that it does not know, and anyone who reaches the proxy can name one: what was refused is sent
again by halves. A call's place among the spans of
its attempt is the clock's time, not a number that the store is asked for. With `log_probs` the sampler is asked for the
log-probability of each token it sampled; they stand in the span as plain numbers, and the agent does not see them.
Nothing else is changed.
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
from agentlightning.semconv import LightningResourceAttributes
from agentlightning.store.base import LightningStore
from agentlightning.utils.server_launcher import PythonServerLauncherArgs
from litellm.integrations.custom_logger import CustomLogger
from litellm.integrations.opentelemetry import OpenTelemetry, OpenTelemetryConfig
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agl_plugin.patches.install import install
from agl_plugin.proxy.gate import ALIVE_PATH, Gate
from agl_plugin.proxy.spans import CALL_SPAN, LOG_PROB_REQUEST, LOG_PROBS, next_sequence_id, plain_log_probs
from foundation.processes import collect_rarely, die_with_parent
from foundation.store_token import Guarded, check_host, token, token_headers

# Where agent-lightning's exporter looks for the headers of a call.
HEADERS = "metadata.requester_custom_headers"
ROLLOUT_PATH = re.compile(r"/rollout/(?P<rollout>[^/]+)/attempt/(?P<attempt>[^/]+)(?P<path>/.*)?")
WANTS_STREAM = re.compile(rb'"stream"\s*:\s*true')
HAS_LOG_PROBS = re.compile(r'"logprobs":\s*\{')
# Of a span's resource: whose call it was.
ATTEMPT_NAMES = (LightningResourceAttributes.ROLLOUT_ID.value, LightningResourceAttributes.ATTEMPT_ID.value)
STORE_ERROR, REFUSED = 500, 400  # OTLP tries again after the first, for up to ten seconds
SEND_EVERY_MS = 20
START_LIMIT_S = 60.0


def with_plain_log_probs(response: str) -> str:
    """A chat completion with each choice's `logprobs`, in either form, as a list of numbers under `log_probs`."""
    tree = json.loads(response)
    for choice in tree.get("choices") or []:
        choice[LOG_PROBS] = plain_log_probs(choice.pop("logprobs", None))
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
    """Keeps the span of each call, and sends those that were kept. A span that the store refuses costs no other."""

    def __init__(self) -> None:
        super().__init__(headers=token_headers())
        self._kept: dict[str, list[ReadableSpan]] = defaultdict(list)
        self._refused = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep the call spans among `spans` for the address that is set now; the others are done with."""
        self._kept[self._endpoint] += [span for span in spans if span.name == CALL_SPAN]
        return SpanExportResult.SUCCESS

    def send(self) -> SpanExportResult:
        """Send what was kept, one request per address."""
        kept, self._kept, address = self._kept, defaultdict(list), self._endpoint
        results = []
        for self._endpoint, spans in kept.items():
            results += self._sent(spans) if spans else []
        self._endpoint = address
        return next((result for result in results if result != SpanExportResult.SUCCESS), SpanExportResult.SUCCESS)

    def _sent(self, spans: Sequence[ReadableSpan]) -> list[SpanExportResult]:
        """Send these in one request; where the store refuses that, by halves, down to the attempt that it refuses."""
        together = super().export(spans)
        if together == SpanExportResult.SUCCESS or not self._refused:
            return [together]
        attempts: dict[tuple[Any, ...], list[ReadableSpan]] = defaultdict(list)
        for span in spans:
            attempts[tuple(span.resource.attributes.get(name) for name in ATTEMPT_NAMES)].append(span)
        if len(attempts) == 1:
            return [together]
        by_attempt = list(attempts.values())
        halves = by_attempt[: len(by_attempt) // 2], by_attempt[len(by_attempt) // 2 :]
        return [sent for half in halves for sent in self._sent([span for of_one in half for span in of_one])]

    def _export(self, serialized_data: bytes, timeout_sec: float | None = None) -> Any:
        """Post. The store refuses with 500, at which OTLP would try again for seconds, and the spans of others wait."""
        reply = super()._export(serialized_data, timeout_sec)
        self._refused = reply.status_code in (STORE_ERROR, REFUSED)
        if self._refused:
            reply.status_code = REFUSED
        return reply


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

    def _get_span_processor(self, *_args: Any, **_kwargs: Any) -> BatchSpanProcessor:
        assert isinstance(self.OTEL_EXPORTER, SpanExporter)
        return BatchSpanProcessor(self.OTEL_EXPORTER, schedule_delay_millis=SEND_EVERY_MS)

    async def async_service_success_hook(self, *_args: Any, **_kwargs: Any) -> None:
        """Nothing: LiteLLM reports on its own parts in spans that the exporter drops."""

    def set_attributes(self, span: Any, kwargs: Any, response_obj: Any) -> None:
        """Of a request's span only the headers, in which the exporter finds the rollout; the span itself is dropped."""
        metadata = (kwargs.get("standard_logging_object") or {}).get("metadata") or {}
        self.safe_set_attribute(span, HEADERS, metadata.get("requester_custom_headers"))

    def set_raw_request_attributes(self, span: Any, kwargs: Any, response_obj: Any) -> None:
        """The parent's, with log-probabilities in their short form."""
        response = kwargs.get("original_response")
        if isinstance(response, str) and HAS_LOG_PROBS.search(response):
            kwargs = {**kwargs, "original_response": with_plain_log_probs(response)}
        super().set_raw_request_attributes(span, kwargs, response_obj)


class RolloutAddress:
    """Takes rollout and attempt out of a request's address, and names them and the call's sequence id in its headers.

    The work of agent-lightning's RolloutAttemptMiddleware, without a request to the store and a task group per call.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        found = ROLLOUT_PATH.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if found:
            path = found["path"] or "/"
            given = {"rollout": found["rollout"], "attempt": found["attempt"], "sequence": str(next_sequence_id())}
            added = [(f"x-{name}-id".encode(), value.encode()) for name, value in given.items()]
            scope = {**scope, "path": path, "raw_path": path.encode(), "headers": [*scope["headers"], *added]}
        await self._app(scope, receive, send)


class StreamsAside:
    """agent-lightning's conversion of streamed calls, for requests that want a stream; the others pass it by."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._converted = llm_proxy.StreamConversionMiddleware(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        parts = [await receive()]
        while parts[-1].get("more_body"):
            parts.append(await receive())
        body, read = b"".join(part.get("body", b"") for part in parts), iter(parts)

        async def receive_again() -> Message:
            return next(read, None) or await receive()

        await (self._converted if WANTS_STREAM.search(body) else self._app)(scope, receive_again, send)


class RunProxy(LLMProxy):
    """agent-lightning's proxy, in a process that ends with the trainer's, sends plain requests and collects rarely."""

    @asynccontextmanager
    async def _serve_context(self) -> AsyncIterator[None]:
        die_with_parent()
        install("proxy")
        collect_rarely()
        async with super()._serve_context():
            yield


def make_proxy(store: LightningStore, *, gate: Gate, host: str, port: int, log_probs: bool = False) -> LLMProxy:
    """The LLM proxy of a run. `log_probs` asks for the log-probability of each sampled token."""
    more = [SamplerLogProbs] if log_probs else []
    check_host(host, "store.proxy_host")
    look = None if token() else ALIVE_PATH  # it would come without the token
    place = PythonServerLauncherArgs(
        host=host, port=port, launch_mode="mp", healthcheck_url=look, startup_timeout=START_LIMIT_S
    )
    return RunProxy(
        launcher_args=place,
        model_list=[],
        store=store,
        # From the inside out: the gate gets requests that StreamsAside has read to their end.
        middlewares=[gate.guarding, RolloutAddress, StreamsAside, Guarded],  # pyright: ignore[reportArgumentType]
        callbacks=["return_token_ids", *more, CallTelemetry],
        # Who may call is Guarded's to say (beyond this machine there is a token); LiteLLM wants a key of its own.
        litellm_config={"general_settings": {"dangerously_permit_weak_or_unset_master_key": True}},
    )
