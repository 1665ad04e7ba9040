"""Either LLM proxy of a run between a client, scripted model servers and a real store, for wire tests."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import agentlightning as agl
import httpx
from agentlightning.store.client_server import LightningStoreServer
from agentlightning.types import Span

from agl_plugin.proxy.gate import Gate
from agl_plugin.proxy.gateway import Gateway
from agl_plugin.proxy.spans import CALL_SPAN
from foundation.net import free_port
from sql_agent.testing.server import Reply, chat_reply

MODEL = "fake-model"
PROMPT_IDS, IDS, LOG_PROBS = [11, 12, 13], [7, 8], [-0.5, -1.25]
NUMBERS = itertools.count()
MESSAGES = [{"role": "user", "content": "?"}]


def worded(log_probs: list[float]) -> dict[str, Any]:
    """Log-probabilities as vLLM sends them."""
    return {"content": [{"token": "x", "logprob": n, "bytes": [120], "top_logprobs": []} for n in log_probs]}


def vllm_reply(request: dict[str, Any], **message: Any) -> dict[str, Any]:
    """As vLLM answers, with ids and log-probabilities for who asks."""
    reply = {**chat_reply("well", **message), "id": f"chatcmpl-{next(NUMBERS)}"}
    reply["usage"]["completion_tokens"] = len(IDS)
    if request.get("return_token_ids"):
        reply["prompt_token_ids"] = PROMPT_IDS
        reply["choices"][0]["token_ids"] = IDS
    if request.get("logprobs"):
        reply["choices"][0]["logprobs"] = worded(LOG_PROBS)
    return reply


def vllm_stream(request: dict[str, Any], *, lost: int = 0) -> bytes:
    """As vLLM streams: the prompt's ids first, an event per token, the usage last. `lost`: tokens without an event."""
    head = {"id": f"chatcmpl-{next(NUMBERS)}", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    events: list[dict[str, Any]] = [{**head, "choices": [first], "prompt_token_ids": PROMPT_IDS}]
    for word, token, log_prob in list(zip(("we", "ll"), IDS, LOG_PROBS, strict=True))[lost:]:
        given = worded([log_prob]) if request.get("logprobs") else None
        choice = {"index": 0, "delta": {"content": word}, "logprobs": given, "token_ids": [token]}
        events.append({**head, "choices": [{**choice, "finish_reason": "stop" if token == IDS[-1] else None}]})
    usage = {"prompt_tokens": len(PROMPT_IDS), "completion_tokens": len(IDS), "total_tokens": 5}
    events += [{**head, "choices": [], "usage": usage}] if request.get("stream_options") else []
    return b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"


def vllm(request: dict[str, Any]) -> dict[str, Any] | Reply:
    """A model server that streams where it is asked to."""
    if request.get("stream"):
        return Reply(body=vllm_stream(request), content_type="text/event-stream")
    return vllm_reply(request)


@dataclass
class Running:
    """A proxy that serves, its gate, the store behind it and a client."""

    proxy: Any
    gate: Gate
    store: LightningStoreServer
    http: httpx.AsyncClient

    async def attempt(self) -> tuple[str, str]:
        """A new rollout's id, and where its attempt makes calls."""
        rollout = await self.store.start_rollout(None)
        place = self.proxy.as_resource().get_base_url(rollout.rollout_id, rollout.attempt.attempt_id)
        return rollout.rollout_id, f"{place}/v1/chat/completions"

    async def call(self, url: str, **body: Any) -> httpx.Response:
        """A sampled chat completion."""
        return await self.http.post(url, json={"model": MODEL, "messages": MESSAGES, "temperature": 1.0, **body})

    async def at_rest(self, *, within_s: float = 10.0) -> bool:
        """Whether no call is left in flight: the proxy notes an answer's end after the client has it."""
        deadline = time.monotonic() + within_s
        while self.gate.in_flight and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        return self.gate.in_flight == 0

    async def spans(self, rollout_id: str, *, n: int = 1, within_s: float = 10.0) -> list[Span]:
        """The rollout's spans, once there are `n`; of LiteLLM's, which are several a call, those of CALL_SPAN."""
        only = None if isinstance(self.proxy, Gateway) else CALL_SPAN
        deadline = time.monotonic() + within_s
        while len(spans := list(await self.store.query_spans(rollout_id, name=only))) < n:
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.02)
        return spans

    async def metrics(self) -> str:
        """What GET /metrics says."""
        return (await self.http.get(f"{self.proxy.as_resource().endpoint}/metrics")).text


def model_list(addresses: Sequence[str]) -> list[Any]:
    """As agent-lightning's daemon words it."""
    params = [{"model": f"hosted_vllm/{MODEL}", "api_base": f"{address}/"} for address in addresses]
    return [{"model_name": MODEL, "litellm_params": one} for one in params]


@asynccontextmanager
async def serving(
    *addresses: str, kind: str = "gateway", log_probs: bool = True, **of_gateway: Any
) -> AsyncIterator[Running]:
    """A proxy of this kind before model servers at `addresses`."""
    store = LightningStoreServer(agl.InMemoryLightningStore(thread_safe=True), "127.0.0.1", free_port())
    await store.start()
    make: Any = functools.partial(Gateway, plain_spans=False)
    if kind == "litellm":
        from agl_plugin.proxy.llm_proxy import make_proxy as make
    gate = Gate()
    keys = {"gate": gate, "host": "127.0.0.1", "port": free_port(), "log_probs": log_probs}
    proxy = make(store=store, **(keys | of_gateway))
    proxy.update_model_list(model_list(addresses))
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    try:
        await proxy.start()
        async with httpx.AsyncClient(trust_env=False, timeout=60.0, limits=limits) as http:
            yield Running(proxy, gate, store, http)
    finally:
        if proxy.is_running():
            await proxy.stop()
        await store.stop()
