"""Chat requests that skip the client's walk over its types reach the server as the same JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from openai import AsyncOpenAI, omit
from openai._utils import async_maybe_transform
from openai.resources.chat.completions import completions

from agl_plugin.patches import plain_requests

ANSWER = {
    "id": "1", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "好"}}],
}  # fmt: skip
MESSAGES: list[Any] = [
    {"role": "user", "content": "查一下"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "query_database_by_sql", "arguments": "{}"}}
    ]},
    {"role": "tool", "tool_call_id": "c", "content": "[]"},
]  # fmt: skip
TOOLS: list[Any] = [{"type": "function", "function": {"name": "query_database_by_sql", "parameters": {}}}]


@pytest.fixture
def server() -> Iterator[tuple[str, list[Any]]]:
    bodies: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(ANSWER).encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_port}", bodies
    http.shutdown()
    http.server_close()


async def ask(address: str) -> str | None:
    async with AsyncOpenAI(api_key="x", base_url=address) as client:
        answer = await client.chat.completions.create(
            model="m", messages=MESSAGES, tools=TOOLS, temperature=1.0, max_tokens=omit, extra_body={"logprobs": True}
        )
    return answer.choices[0].message.content


def test_the_body_is_the_same(server: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    address, bodies = server
    monkeypatch.setattr(completions, "async_maybe_transform", async_maybe_transform)
    assert asyncio.run(ask(address)) == "好"
    monkeypatch.setattr(completions, "async_maybe_transform", plain_requests.plain)
    assert asyncio.run(ask(address)) == "好"
    assert bodies[0] == bodies[1] and "max_tokens" not in bodies[1] and bodies[1]["tools"] == TOOLS
