"""A connection of our servers, over raw sockets: other protocols, what is no HTTP, heads that never end."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from agentlightning.utils.server_launcher import PythonServerLauncherArgs
from websockets.asyncio.client import connect

from agl_plugin.launcher import Launcher
from foundation import http_connection
from foundation.http_connection import config_of
from foundation.http_gate import Traffic
from foundation.http_server import HttpServer
from foundation.net import bind, free_port

UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers GET at once, and else with the body's length."""
    n_bytes, more = 0, scope["method"] != "GET"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        n_bytes, more = n_bytes + len(message["body"]), message["more_body"]
    body = b"%d" % n_bytes
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def of_http_server() -> AsyncIterator[int]:
    listener = bind("127.0.0.1", 0)
    server = HttpServer(config_of(app, lifespan="off", timeout_graceful_shutdown=1), Traffic())
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]))
    thread.start()
    while not server.started:
        await asyncio.sleep(0.01)
    yield listener.getsockname()[1]
    server.should_exit = True
    await asyncio.to_thread(thread.join)


@asynccontextmanager
async def of_launcher() -> AsyncIterator[int]:
    """As the store, the gateway and the LLM proxy on LiteLLM are served."""
    port, served = free_port(), app
    whole: Any = served
    launcher = Launcher(whole, PythonServerLauncherArgs(host="127.0.0.1", port=port, log_level=logging.WARNING))
    await launcher.start()
    yield port
    await launcher.stop()


@pytest.fixture(params=[of_http_server, of_launcher])
async def port(request: pytest.FixtureRequest) -> AsyncIterator[int]:
    async with request.param() as port:
        yield port


async def told(port: int, *parts: bytes) -> bytes:
    """All that comes, to the end of the connection, when the parts were sent one after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
        await asyncio.sleep(0.1)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


CLOSE = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("request_", "body"),
    [
        (HEAD + UPGRADE + b"Content-Length: 3\r\n\r\nabc", b"3"),
        (HEAD + UPGRADE + b"Content-Length: 0\r\n\r\n", b"0"),
        (HEAD + UPGRADE.replace(b"websocket", b"h2c") + b"Content-Length: 3\r\n\r\nabc", b"3"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + UPGRADE + b"\r\n", b"0"),
    ],
)
async def test_who_asks_for_another_protocol_is_answered_in_this_one(port: int, request_: bytes, body: bytes) -> None:
    answer = await told(port, request_, CLOSE)
    assert answer.count(b"HTTP/1.1 200 OK") == 2 and answer.partition(b"\r\n\r\n")[2].startswith(body + b"HTTP/1.1")


@pytest.mark.parametrize(
    "parts",
    [
        [b"\x16\x03\x01\x02\x00\x01\r\n\r\n"],
        [b"GET / HTTP/1.1\r\n\r\n"],
        [HEAD + b"Content-Length: -1\r\n\r\n"],
        [CHUNKED + b"zz\r\n"],
        [CHUNKED, b"1\r\na\r\n", b"zz\r\n"],
    ],
)
async def test_what_is_no_http_is_told_so_in_json(port: int, parts: list[bytes]) -> None:
    head, _, body = (await told(port, *parts)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request") and b"application/json" in head
    assert "Host" in json.loads(body)["detail"]


async def test_what_is_no_body_after_an_answer_ends_the_connection_and_no_more(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await told(port, CHUNKED.replace(b"POST", b"GET"), b"zz\r\n")
    assert answer.count(b"HTTP/1.1") == 1 and b" 200 " in answer
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_head_that_does_not_come_is_cut_off(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "HEAD_S", 0.5)
    for parts in [[b""], [HEAD], [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", HEAD]]:
        assert (await told(port, *parts)).count(b"HTTP/1.1 ") == len(parts) - 1
    assert b"200 OK" in await told(port, CLOSE)


async def test_a_websocket_lives_where_the_server_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than a head may take: nothing is owed there."""
    monkeypatch.setattr(http_connection, "HEAD_S", 0.2)

    async def echo(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        said = await receive()
        await send({"type": "websocket.send", "text": said["text"]})
        await receive()

    listener = bind("127.0.0.1", 0)
    config = config_of(echo, ws="auto", lifespan="off", timeout_graceful_shutdown=1)
    server = HttpServer(config, Traffic())
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]))
    thread.start()
    while not server.started:
        await asyncio.sleep(0.01)
    async with connect(f"ws://127.0.0.1:{listener.getsockname()[1]}/", proxy=None) as line:
        await asyncio.sleep(0.6)
        await line.send("still there")
        assert await line.recv() == "still there"
    server.should_exit = True
    await asyncio.to_thread(thread.join)


async def test_the_application_ends_in_order_at_a_second_ctrl_c_too() -> None:
    events: list[str] = []

    async def with_lifespan(_scope: Any, receive: Any, send: Any) -> None:
        for kind in ("startup", "shutdown"):
            events.append((await receive())["type"])
            await send({"type": f"lifespan.{kind}.complete"})

    server = HttpServer(config_of(with_lifespan, lifespan="on"), Traffic())
    thread = threading.Thread(target=lambda: server.run(sockets=[bind("127.0.0.1", 0)]))
    thread.start()
    while not server.started:
        await asyncio.sleep(0.01)
    server.should_exit = server.force_exit = True
    await asyncio.to_thread(thread.join)
    assert events == ["lifespan.startup", "lifespan.shutdown"]
