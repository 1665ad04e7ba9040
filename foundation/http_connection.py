"""One connection of every server: what must hold before an application is asked.

Guarantees: the head of a request has at most 64 KiB, and HEAD_S to arrive, the first one and each later one; who takes
longer is cut off. What is no HTTP is answered with 400 and a `detail` in JSON, or, where an answer has begun, ends the
connection. A request that asks for another protocol is answered as if it did not, but for a GET that asks for a
WebSocket where the server has those.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol  # httptools, taken where it is installed, bounds no head

HEAD_S = 30.0
DETAIL = "this is no HTTP/1.1 request: send a head in its form, with a Host and the length of the body"
NO_HTTP = json.dumps({"detail": DETAIL}).encode()
REFUSAL = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
)


class Connection(H11Protocol):
    """uvicorn's, with what this module tells of."""

    _owed: asyncio.TimerHandle | None = None  # ends the connection, unless a head comes

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._look()

    def _look(self) -> None:
        """Whether it was opened, or began a request after its last answer, and has not sent all of the head."""
        is_between = self.cycle is None or (self.cycle.response_complete and self.timeout_keep_alive_task is None)
        owes = is_between and self in self.connections  # a WebSocket has left them
        if owes and not self._owed:
            self._owed = self.loop.call_later(HEAD_S, self.transport.abort)
        elif self._owed and not owes:
            self._owed.cancel()
            self._owed = None

    def _should_upgrade(self) -> bool:
        is_wanted = self.scope["method"] == "GET" and self._get_upgrade() == b"websocket"
        return is_wanted and self._should_upgrade_to_ws()

    def send_400_response(self, msg: str) -> None:
        if self.cycle:
            self.cycle.disconnected = True  # its application sends nothing more
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(REFUSAL % len(NO_HTTP) + NO_HTTP)
        self.transport.close()


def config_of(app: Any, **options: Any) -> uvicorn.Config:
    """How a server of ours is configured; `ws` is "auto" for one that has WebSockets."""
    defaults = {"ws": "none", "log_level": "warning", "access_log": False, "server_header": False}
    return uvicorn.Config(app, http=Connection, **defaults | options)
