"""The end of a step: no call is left, late ones are refused."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from agl_plugin.proxy.gate import ALIVE_PATH, GONE, Gate
from agl_plugin.run.between_steps import drain, hold
from foundation.errors import RunError


class Server:
    """A model server that answers once it is told to abort, behind a gate."""

    def __init__(self) -> None:
        self.gate, self.aborted, self.n_seen = Gate(), asyncio.Event(), 0
        self._loop = asyncio.get_running_loop()
        routes = [Route("/call", self._answer, methods=["POST"]), Route(ALIVE_PATH, lambda _request: JSONResponse({}))]
        transport = httpx.ASGITransport(self.gate.guarding(Starlette(routes=routes)))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    async def _answer(self, _request: Request) -> JSONResponse:
        self.n_seen += 1
        await self.aborted.wait()
        return JSONResponse({})

    async def call_under_way(self, client: httpx.AsyncClient) -> asyncio.Task[httpx.Response]:
        call = asyncio.create_task(client.post("/call"))
        while self.n_seen < 1:
            await asyncio.sleep(0.01)
        return call

    def abort(self) -> int:
        self._loop.call_soon_threadsafe(self.aborted.set)
        return 1


async def test_a_call_in_flight_is_aborted_and_waited_for_and_a_late_one_is_refused() -> None:
    server = Server()
    async with server.client as client:
        call = await server.call_under_way(client)
        assert server.gate.in_flight == 1
        assert await asyncio.to_thread(drain, server.gate, server.abort) >= 1
        assert server.gate.in_flight == 0 and (await call).status_code == 200
        late = await client.post("/call")
        assert late.status_code == GONE and "has ended" in late.json()["error"]["message"]
        assert (server.gate.refused, server.n_seen) == (1, 1)
        assert (await client.get(ALIVE_PATH)).status_code == 200
        server.gate.open()
        assert (await client.post("/call")).status_code == 200 and server.gate.refused == 1


async def test_a_call_that_does_not_end_ends_the_run() -> None:
    server = Server()
    async with server.client as client:
        call = await server.call_under_way(client)
        with pytest.raises(RunError, match=r"1 calls .* did not end within 0 s.*--resume"):
            await asyncio.to_thread(drain, server.gate, lambda: 0, limit_s=0.1)
        server.aborted.set()
        await call


async def test_a_held_call_waits_for_the_next_weights_and_the_one_under_way_ends_before_them() -> None:
    server = Server()
    async with server.client as client:
        call = await server.call_under_way(client)
        holding = asyncio.create_task(asyncio.to_thread(hold, server.gate, lambda: True, limit_s=30.0))
        late = asyncio.create_task(client.post("/call"))
        await asyncio.sleep(0.2)
        assert not holding.done() and server.n_seen == 1  # nothing is aborted
        server.aborted.set()
        await holding
        assert (await call).status_code == 200
        assert drain(server.gate, lambda: 0, held=True) == 0 and not late.done()
        server.gate.open(weights=1)
        assert (await late).status_code == 200 and (server.gate.refused, server.n_seen) == (0, 2)


async def test_holding_ends_with_its_limit_and_with_the_proxy() -> None:
    server = Server()
    async with server.client as client:
        call = await server.call_under_way(client)
        for lives, limit_s in ((True, 0.1), (False, 60.0)):
            await asyncio.wait_for(asyncio.to_thread(hold, server.gate, lambda: lives, limit_s=limit_s), 10.0)  # noqa: B023
            assert server.gate.in_flight == 1
        server.aborted.set()
        await call
