"""What the LLM proxy does with the address of a call, and with one that wants a stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from agl_plugin.proxy.llm_proxy import RolloutAddress, StreamsAside
from sql_agent.testing.server import chat_reply

CALL = "/rollout/ro-1/attempt/at-2/v1/chat/completions"


async def answer(request: Request) -> JSONResponse:
    """Tells what reached it, in the text of a chat completion."""
    seen: dict[str, Any] = {"path": request.url.path, "body": await request.json()}
    seen |= {name: request.headers.get(f"x-{name}-id") for name in ("rollout", "attempt", "sequence")}
    return JSONResponse(chat_reply(json.dumps(seen)))


def client() -> httpx.AsyncClient:
    app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])
    app.add_middleware(RolloutAddress)
    app.add_middleware(StreamsAside)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")


async def seen(path: str, **request: Any) -> dict[str, Any]:
    async with client() as http:
        reply = await http.post(path, **request)
    return json.loads(reply.json()["choices"][0]["message"]["content"])


async def test_the_address_names_the_attempt() -> None:
    first, second = await seen(CALL, json={"n": 1}), await seen(CALL, json={"n": 2})
    assert first["path"] == "/v1/chat/completions" and first["body"] == {"n": 1}
    assert (first["rollout"], first["attempt"]) == ("ro-1", "at-2")
    assert int(second["sequence"]) > int(first["sequence"]) > 0


async def test_other_addresses_are_left_alone() -> None:
    found = await seen("/v1/chat/completions", json={})
    assert (found["rollout"], found["attempt"], found["sequence"]) == (None, None, None)


async def test_a_body_in_parts_arrives_whole() -> None:
    async def parts() -> AsyncIterator[bytes]:
        for part in (b'{"text": "', b"a" * 70_000, b'"}'):
            yield part

    assert (await seen(CALL, content=parts()))["body"] == {"text": "a" * 70_000}


@pytest.mark.parametrize("text", ["say hello", 'a question about "stream": true'])
async def test_a_request_for_a_stream_gets_one(text: str) -> None:
    messages = [{"role": "user", "content": text}]
    async with client() as http:
        plain = await http.post(CALL, json={"messages": messages, "stream": False})
        streamed = await http.post(CALL, json={"messages": messages, "stream": True})
    assert plain.json()["object"] == "chat.completion"
    assert streamed.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line.removeprefix("data: ")) for line in streamed.text.split("\n\n")[:-2]]
    content = "".join(event["choices"][0]["delta"].get("content") or "" for event in events)
    assert json.loads(content)["body"] == {"messages": messages, "stream": False}
