"""The relay of an episode before odd requests: each has an answer that says why, and none leaves a traceback."""

from __future__ import annotations

import gzip
import logging
import socket
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.relay import Relay, Session
from sql_agent.agent.tool import EpisodeContext
from sql_agent.testing.server import FakeServer, chat_reply, openai_server

BODY = b'{"messages": [{"role": "user", "content": "?"}]}'


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with openai_server(lambda _: chat_reply("well")) as server:
        yield server


@pytest.fixture
def url(server: FakeServer) -> Iterator[str]:
    with closing(Relay()) as relay:
        yield relay.open(Session(LLMEndpoint(server.base_url, "m"), EpisodeContext(), 64, 5.0))


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content-Type": "application/json; charset=nonsense"}, BODY, 200),
        ({"Content-Type": "application/json; charset=rot13"}, BODY, 200),
        ({"Content-Encoding": "gzip"}, BODY, 200),
        ({"Content-Encoding": "gzip"}, gzip.compress(BODY, mtime=0), 400),
        ({"Content-Encoding": "gzip"}, gzip.compress(b" " * (64 << 20), mtime=0), 400),
        ({}, b" " * (33 << 20), 413),
    ],
)
def test_an_odd_body_is_read_as_it_came(
    url: str, headers: dict[str, str], body: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    reply = httpx.post(f"{url}/chat/completions", content=body, headers=headers, timeout=30)
    assert reply.status_code == status, reply.text
    assert status == 200 or reply.json()["error"]["message"]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "", 404), ("PUT", "/chat/completions", 405)])
def test_what_is_not_there_is_told_as_openai_words_it(url: str, method: str, path: str, status: int) -> None:
    reply = httpx.request(method, url + path)
    assert reply.status_code == status and reply.json()["error"]["code"] == str(status)


@pytest.mark.parametrize(
    "head", [b"POST / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"]
)
def test_what_is_no_http_leaves_no_traceback(url: str, head: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0), timeout=10) as line:
        line.sendall(head)
        assert b" 400 " in line.recv(1000)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
