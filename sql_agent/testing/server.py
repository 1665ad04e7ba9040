"""A real OpenAI-compatible HTTP server on 127.0.0.1 for benchmarks and tests, with all the faults a server can have.

    with openai_server(lambda request: chat_reply("hello")) as server:
        ... server.base_url ... server.requests ...

A handler gets the request's JSON and returns a chat completion (a dict), a `Reply` for everything else, or RESET or
HANG. `in_turn(a, b)` answers a, then b, then b again. A handler runs in the server's threads. With `keep_alive` a
connection stays open after an answer, as those of real servers do; `tls` makes it HTTPS. A stream
is a Reply whose body is there from the start (`stream_reply`).
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """Any HTTP answer. `pause_s` comes before the status line; `chunk_pause_s` before each tenth of the body.

    `missing_bytes`: so many more are announced than come. `raw`: these bytes instead of HTTP.
    """

    status: int = 200
    body: str | bytes | dict[str, Any] = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    pause_s: float = 0.0
    chunk_pause_s: float = 0.0
    content_type: str = "application/json"
    missing_bytes: int = 0
    raw: bytes = b""


RESET = Reply(status=-1)
HANG = Reply(pause_s=3600.0)

Answer = dict[str, Any] | Reply
Handler = Callable[[dict[str, Any]], Answer]


@dataclass(frozen=True)
class Request:
    """One request as it came. `at_s` is time.monotonic(); header names are in lower case."""

    path: str
    headers: dict[str, str]
    json: dict[str, Any]
    at_s: float


def chat_reply(content: str | None, *, finish_reason: str = "stop", **extra: Any) -> dict[str, Any]:
    """A chat completion with `content`; `extra` are further keys of the message."""
    message = {"role": "assistant", "content": content, **extra}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "fake-model",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12},
    }


def tool_call_reply(*calls: tuple[str, dict[str, Any] | str], content: str | None = None) -> dict[str, Any]:
    """A chat completion that calls tools: (name, arguments), arguments as a dict or as the raw text to send."""
    tool_calls = [
        {
            "id": f"call_{i}",
            "type": "function",
            "function": {"name": name, "arguments": args if isinstance(args, str) else json.dumps(args)},
        }
        for i, (name, args) in enumerate(calls)
    ]
    return chat_reply(content, finish_reason="tool_calls", tool_calls=tool_calls)


def stream_reply(*deltas: dict[str, Any]) -> Reply:
    """A chat completion as a stream of events, one for each delta of the message, and one for the tokens."""
    lines = [f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]})}\n\n" for delta in deltas]
    usage = f"data: {json.dumps({'choices': [], 'usage': {'prompt_tokens': 3, 'completion_tokens': 4}})}\n\n"
    body = "".join(lines) + usage + "data: [DONE]\n\n"
    return Reply(body=body, content_type="text/event-stream")


def error_reply(status: int, message: str, **headers: str) -> Reply:
    """An error as OpenAI words it. Header names are given with _ for -: Retry_After="1"."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, body={"error": {"message": message, "type": "error"}}, headers=named)


def in_turn(*answers: Answer) -> Handler:
    """A handler that gives one answer after the other and repeats the last."""
    remaining, lock = list(answers), threading.Lock()

    def handler(_: dict[str, Any]) -> Answer:
        with lock:
            return remaining.pop(0) if len(remaining) > 1 else remaining[0]

    return handler


@contextmanager
def openai_server(
    handler: Handler, *, port: int = 0, keep_alive: bool = False, tls: ssl.SSLContext | None = None
) -> Iterator[FakeServer]:
    """Serve POST .../chat/completions (or a reward model's .../score) with `handler`, and GET .../models."""
    server = FakeServer(handler, port=port, keep_alive=keep_alive, tls=tls)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


class FakeServer(ThreadingHTTPServer):
    """What a test sees: the address (with /v1), the requests so far, and how many were open at once at most."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, handler: Handler, *, port: int, keep_alive: bool, tls: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", port), _RequestHandler)
        self.protocol_version = "HTTP/1.1" if keep_alive else "HTTP/1.0"
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.base_url = f"http{'s' if tls else ''}://127.0.0.1:{self.server_port}/v1"
        self.answer = handler
        self.requests: list[Request] = []
        self.most_open = self.n_open = self.n_connections = 0
        self.ended, self.lock = threading.Event(), threading.Lock()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gives up is part of many tests; anything else shows."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _RequestHandler(BaseHTTPRequestHandler):
    server: FakeServer  # pyright: ignore[reportIncompatibleVariableOverride]
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.protocol_version = self.server.protocol_version
        with self.server.lock:
            self.server.n_connections += 1

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: the requests are in `FakeServer.requests`."""

    def do_GET(self) -> None:
        known = self.path.endswith("/models")
        body = {"object": "list", "data": [{"id": "fake-model", "object": "model"}]}
        self._send(Reply(body=body) if known else error_reply(404, "no such route"))

    def do_POST(self) -> None:
        with self.server.lock:
            self.server.n_open += 1
            self.server.most_open = max(self.server.most_open, self.server.n_open)
        try:
            reply = self._answer()
            ended = self.server.ended.wait(reply.pause_s)
        finally:
            # Before the answer leaves: a client that has it may send its next request at once.
            with self.server.lock:
                self.server.n_open -= 1
        if reply is RESET or not ended:
            self._send(reply)

    def _answer(self) -> Reply:
        data = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(path=self.path, headers=headers, json=data, at_s=time.monotonic())
        with self.server.lock:
            self.server.requests.append(request)
        if not self.path.endswith(("/chat/completions", "/score")):
            return error_reply(404, f"no such route: {self.path}")
        answer = self.server.answer(data)
        return answer if isinstance(answer, Reply) else Reply(body=answer)

    def _send(self, reply: Reply) -> None:
        self.close_connection |= reply is RESET or bool(reply.raw or reply.missing_bytes)
        if reply is RESET:
            # Linger 0: closing sends RST instead of FIN.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())
            return
        if reply.raw:
            self.wfile.write(reply.raw)
            return
        body = json.dumps(reply.body, ensure_ascii=False) if isinstance(reply.body, dict) else reply.body
        data = body.encode() if isinstance(body, str) else body
        self.send_response(reply.status)
        for name, value in {"Content-Type": reply.content_type, **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) + reply.missing_bytes))
        self.end_headers()
        self._send_body(data, reply.chunk_pause_s)

    def _send_body(self, data: bytes, chunk_pause_s: float) -> None:
        size = max(1, len(data) // 10) if chunk_pause_s else max(1, len(data))
        for start in range(0, len(data), size):
            if chunk_pause_s and self.server.ended.wait(chunk_pause_s):
                return
            self.wfile.write(data[start : start + size])
            self.wfile.flush()
