"""A model server that costs next to nothing, in a process of its own: benchmarks/traffic.py measures what is before it.

It answers POST /DELAY_MS/v1/chat/completions after so many milliseconds with the same answer, of as many token ids as
vLLM gives for a short question; as a stream, an event per token over that time, where it is asked for one. Not covered:
faults (sql_agent/testing/server.py has those), any sampling.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from agl_plugin.proxy.answers import IDS, as_event
from foundation.net import free_port
from foundation.processes import end_with_parent
from sql_agent.testing.server import chat_reply

MODEL = "fake-model"
N_PROMPT_IDS, N_IDS = 220, 52


def answer(number: int) -> dict[str, Any]:
    """A chat completion with token ids and log-probabilities as this project's vLLM words them."""
    reply = chat_reply("十二个字的一个回答，说到适应症。", logprobs=None)
    reply["id"] = f"chatcmpl-{number:012}"
    reply[IDS] = [151000 + n for n in range(N_PROMPT_IDS)]
    choice = reply["choices"][0]
    choice["token_ids"] = [100000 + n for n in range(N_IDS)]
    numbers = [round(-0.0123456 * n, 7) for n in range(N_IDS)]
    choice["logprobs"] = {
        "content": [{"token": "x", "logprob": n, "bytes": [120], "top_logprobs": []} for n in numbers]
    }
    return reply


def events(number: int) -> Iterator[bytes]:
    whole = answer(number)
    choice, head = whole["choices"][0], {"id": whole["id"], "object": "chat.completion.chunk", "model": MODEL}
    first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    yield as_event({**head, "choices": [first], IDS: whole[IDS]})
    for token, log_prob in zip(choice["token_ids"], choice["logprobs"]["content"], strict=True):
        part = {"index": 0, "delta": {"content": "x"}, "logprobs": {"content": [log_prob]}, "token_ids": [token]}
        ended = "stop" if token == choice["token_ids"][-1] else None
        yield as_event({**head, "choices": [part | {"finish_reason": ended}]})
    yield as_event({**head, "choices": [], "usage": {**whole["usage"], "completion_tokens": N_IDS}})
    yield b"data: [DONE]\n\n"


def _serve(port: int) -> None:
    end_with_parent()
    head, tail = (part.encode() for part in json.dumps(answer(0), ensure_ascii=False).split("0" * 12))
    numbers = itertools.count()
    streamed = list(events(0))

    async def stream(request: web.Request, pause_s: float) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in streamed:
            await response.write(event)
            if pause_s:
                await asyncio.sleep(pause_s)
        await response.write_eof()
        return response

    async def complete(request: web.Request) -> web.StreamResponse:
        body, delay_ms = await request.read(), int(request.match_info["delay_ms"])
        if b'"stream":true' in body.replace(b" ", b""):
            return await stream(request, delay_ms / 1000 / len(streamed))
        if delay_ms:
            await asyncio.sleep(delay_ms / 1000)
        body = b"%s%012d%s" % (head, next(numbers), tail)
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_post("/{delay_ms}/v1/chat/completions", complete)
    web.run_app(app, host="127.0.0.1", port=port, print=lambda *_: None, access_log=None, backlog=1024)


@contextmanager
def model_server() -> Iterator[str]:
    """Its address, without the delay."""
    port = free_port()
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(port,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.join(10)
