"""The server process around the application: its port, and its end.

Guarantees: the port is taken before the model is loaded, so a port in use costs no loading time; at SIGTERM or Ctrl-C
the port closes at once, so that the next server may start on it; who has connected by then is answered, and each kept
connection gets one more answer that says `Connection: close` instead of being cut under a request on its way. What a
connection guarantees says http_connection.py.
Not covered: SIGKILL; clients then see a reset connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable
from typing import Any

import uvicorn

from foundation.http_connection import config_of
from foundation.http_gate import Traffic

logger = logging.getLogger(__name__)

GOODBYE_S = 1.0  # kept connections may bring one more request in this time
POLL_S = 0.02


def run(
    app: Any,
    traffic: Traffic,
    listener: socket.socket,
    *,
    drain_s: int,
    is_over: Callable[[], bool] = lambda: False,
    websockets: bool = False,
) -> None:
    """Serve until a signal comes or `is_over` (asked ten times a second) says so; then answer what was accepted, for at
    most `drain_s` seconds. Raises KeyboardInterrupt after a signal."""
    config = config_of(app, timeout_graceful_shutdown=drain_s, ws="auto" if websockets else "none")
    HttpServer(config, traffic, is_over).run(sockets=[listener])


class HttpServer(uvicorn.Server):
    """uvicorn's, with the end that this module tells of."""

    def __init__(self, config: uvicorn.Config, traffic: Traffic, is_over: Callable[[], bool] = lambda: False) -> None:
        super().__init__(config)
        self._traffic, self._is_over = traffic, is_over
        self._spare: list[socket.socket] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """A second handle on each port: closing the only one resets the connections that wait behind it."""
        self._spare = [listener.dup() for listener in sockets or []]
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        """True ends the server. Called ten times a second."""
        return await super().on_tick(counter) or self._is_over()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the port, let kept connections end by themselves, then what uvicorn does: wait for the rest."""
        self._traffic.is_ending = True
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for spare in self._spare:
            await self._take_waiting(spare)
        ends_s = time.monotonic() + GOODBYE_S
        while self.server_state.connections and not self.force_exit and time.monotonic() < ends_s:
            await asyncio.sleep(POLL_S)
        await super().shutdown()
        if self.force_exit:  # else the application is cancelled where it waits, and Starlette logs that
            await self.lifespan.shutdown()
        logger.info("ended: %s", self._traffic)

    async def _take_waiting(self, listener: socket.socket) -> None:
        """Accept who has connected already, then close the port."""
        listener.setblocking(False)
        waiting: list[socket.socket] = []
        with listener, contextlib.suppress(BlockingIOError):
            while True:
                waiting.append(listener.accept()[0])
        for connection in waiting:
            with contextlib.suppress(OSError):
                await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> Any:
        """As uvicorn's `startup` makes one per connection."""
        make: Any = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
