"""A session with an MCP server, one for a whole process: opened on first use, and opened again after the server died.

Guarantees: a server that is dead, or answers nothing any more, is a ToolFault for the calls in flight and for those
until it may be started again, after a wait that doubles with each failure; what it wrote to stderr last is told. A
program sees HOME, PATH and the like and its `env`, no other variable; it ends with the session, and on Linux by SIGKILL
when this process dies. Not covered: processes that such a program starts, which see their stdin closed. `ask` is for
the loop that was given, the other methods for any thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import shutil
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
from mcp import ClientSession, MCPError, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel

from foundation.background import LoopThread
from foundation.child import usual_environment
from foundation.errors import UserError
from foundation.net import is_loopback
from sql_agent.agent import mcp_pipe
from sql_agent.config.agent import McpConfig
from sql_agent.environment.child_side import arguments
from sql_agent.errors import ToolFault

logger = logging.getLogger(__name__)
START_S, PING_S, CLOSE_S = 30.0, 5.0, 6.0
QUIET_S = 4.0  # a server that is waited for longer is named
READ_S = 900.0  # a longer wait ends the whole HTTP session; calls have limits of their own
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 60.0
KEPT_BYTES = 2000
EVENT_BYTES = 32 * 2**20  # of an answer over HTTP; a longer one is told to the model as an error
LOST = ("Connection closed", "Session terminated", "SSE stream ended")  # how the client's own words begin
CLOSED = (anyio.ClosedResourceError, anyio.BrokenResourceError)
Streams = tuple[Any, ...]


class _Life:
    """One life of a server: its own task opens and closes it, as anyio's scopes demand."""

    def __init__(self, owner: McpSession) -> None:
        self._owner = owner
        self.session: ClientSession | None = None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stop = asyncio.Event()
        self.why = ""
        self._stderr_tail = b""
        self.task = asyncio.create_task(self._live())

    async def _live(self) -> None:
        try:
            program = self._owner.program
            transport = self._stdio(program) if program else _http(self._owner.config.url, self._owner.headers)
            async with transport as streams, ClientSession(streams[0], streams[1]) as session:
                async with asyncio.timeout(START_S):
                    await session.initialize()
                self.session = session
                self.opened.set_result(None)
                await self.stop.wait()
        except Exception as exc:  # whatever it is, nobody but the callers can be told
            self.why = _reason(exc)
            logger.debug("MCP server %s", self._owner.name, exc_info=True)
        finally:
            self.session = None

    @asynccontextmanager
    async def _stdio(self, program: StdioServerParameters) -> AsyncIterator[Streams]:
        read_end, write_end = os.pipe()
        reading = asyncio.create_task(self._read(read_end))
        try:
            with os.fdopen(write_end, "w") as errors:
                async with stdio_client(program, errlog=errors) as streams:
                    yield streams
        finally:
            await asyncio.wait({reading}, timeout=0.5)  # until its end, unless a child of it keeps the line open
            reading.cancel()

    async def _read(self, descriptor: int) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(descriptor, "rb")
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        try:
            while chunk := await reader.read(1 << 16):
                self._stderr_tail = (self._stderr_tail + chunk)[-KEPT_BYTES:]
        finally:
            transport.close()

    @property
    def last_words(self) -> str:
        """Why it ended, with the end of what it wrote to stderr."""
        stderr_tail = " ".join(self._stderr_tail.decode("utf-8", "replace").split())[-300:]
        return "; it said: ".join(part for part in (self.why or "connection closed", stderr_tail) if part)


class McpSession:
    """The session with one server. Raises UserError for a program or variables that there are not."""

    def __init__(self, name: str, config: McpConfig, loop: LoopThread) -> None:
        self.name, self.config, self._loop = name, config, loop
        self.program = _program(config, name) if config.command else None
        self.headers = {k: _variable(f"agent.mcp.{name}.headers", v) for k, v in config.headers.items()}
        self._life: _Life | None = None
        self._lives: list[asyncio.Task[None]] = []
        self._n_failures, self._not_before_s, self._why = 0, 0.0, ""

    async def call[Result: BaseModel](self, request: Any, kind: type[Result], *, timeout_s: float) -> Result:
        """What the server answers, asked from any loop. Raises ToolFault, TimeoutError, and MCPError as it sent it."""
        try:
            return await self._loop.call(self.ask(request, kind), timeout_s=timeout_s)
        except TimeoutError:
            # Whether that call is slow or the server is dead; an HTTP client is not told of the latter.
            await asyncio.wrap_future(self._loop.submit(self._require_alive()))
            raise

    async def ask[Result: BaseModel](self, request: Any, kind: type[Result]) -> Result:
        """`call` without a limit."""
        life = await self._opened()
        assert life.session
        asking = asyncio.create_task(life.session.send_request(request, kind))
        try:
            await asyncio.wait({asking, life.task}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise await self._lost(life)
            answer = asking.result()
        except CLOSED as exc:
            raise await self._lost(life) from exc
        except MCPError as exc:
            if exc.error.message.startswith(LOST):
                raise await self._lost(life) from exc
            if exc.error.code == types.INTERNAL_ERROR:
                raise ToolFault(f"MCP server {self.name!r}: {exc.error.message}"[:500]) from exc
            raise
        finally:
            asking.cancel()
        self._n_failures = 0
        return answer

    def wait_for(self, work: Coroutine[Any, Any, Any], *, timeout_s: float) -> Any:
        """What `work`, which asks here, gives; for code without a loop. Raises UserError instead of ToolFault."""
        asked = self._loop.submit(work)
        if not concurrent.futures.wait([asked], min(QUIET_S, timeout_s)).done:
            logger.warning("agent.mcp.%s: waiting for its list of tools, at most %g s", self.name, timeout_s)
        try:
            return asked.result(timeout_s)
        except (ToolFault, MCPError, TimeoutError) as exc:
            look = f"Start {self.config.command!r} by hand" if self.program else "See whether its url answers"
            raise UserError(
                f"agent.mcp.{self.name} gives no list of tools: {str(exc) or 'it took too long'}. {look}, or leave the "
                "server out"
            ) from exc

    async def _opened(self) -> _Life:
        if self._life is None:
            wait_s = self._not_before_s - asyncio.get_running_loop().time()
            if wait_s > 0:
                raise ToolFault(f"MCP server {self.name!r} is down ({self._why}); started again in {wait_s:.1f} s")
            self._life = _Life(self)
            self._lives = [task for task in self._lives if not task.done()] + [self._life.task]
        life = self._life
        await asyncio.wait({life.opened, life.task}, return_when=asyncio.FIRST_COMPLETED)
        if life.session is None:
            raise await self._lost(life)
        return life

    async def _lost(self, life: _Life) -> ToolFault:
        life.stop.set()
        if life is self._life:
            self._life = None
            self._n_failures += 1
            wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (self._n_failures - 1))
            self._not_before_s = asyncio.get_running_loop().time() + wait_s
            self._why = "its connection is closed"
        await asyncio.wait({life.task}, timeout=1.0)  # by then its last words are read
        self._why = life.last_words
        state = "is gone" if life.opened.done() else "did not open"
        return ToolFault(f"MCP server {self.name!r} {state} ({self._why})"[:700])

    async def _require_alive(self) -> None:
        life = self._life
        if life is None:
            raise ToolFault(f"MCP server {self.name!r} is down ({self._why})")
        try:
            async with asyncio.timeout(PING_S):
                await self.ask(types.PingRequest(), types.EmptyResult)
        except MCPError:
            return  # that is an answer too
        except TimeoutError:
            life.why = f"it answers nothing, not even a ping within {PING_S:g} s"
            raise await self._lost(life) from None

    def close(self) -> None:
        """End the server and wait for it."""
        with contextlib.suppress(TimeoutError, concurrent.futures.CancelledError):
            self._loop.submit(self._end()).result(CLOSE_S)

    async def _end(self) -> None:
        if self._life:
            self._life.stop.set()
        if self._lives:
            await asyncio.wait(self._lives)


def _reason(exc: BaseException) -> str:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    if isinstance(exc, TimeoutError):
        return f"no answer within {START_S:g} s"
    return f"{type(exc).__name__}: {exc}"[:300]


def _variable(where: str, name: str) -> str:
    variables = dict(os.environ)  # the name is the user's own
    if name not in variables:
        raise UserError(f"{where} names the environment variable {name!r}, which is not set. Set it, or add it to .env")
    return variables[name]


def _program(config: McpConfig, name: str) -> StdioServerParameters:
    """The program with its variables; `python` is the one that runs this."""
    program = sys.executable if config.command == "python" else shutil.which(config.command)
    if not program:
        raise UserError(f"agent.mcp.{name}.command = {config.command!r}: no such program; install it, or give its path")
    where = f"agent.mcp.{name}.env"
    own = {k: _variable(where, v[1:]) if v.startswith("$") else v for k, v in config.env.items()}
    launch = arguments(mcp_pipe.__name__, str(os.getpid()), program, *config.args)
    return StdioServerParameters(command=sys.executable, args=launch, env=usual_environment() | own)


@asynccontextmanager
async def _http(url: str, headers: dict[str, str]) -> AsyncIterator[Streams]:
    client = httpx2.AsyncClient(
        headers=headers,
        timeout=httpx2.Timeout(START_S, read=READ_S),
        limits=httpx2.Limits(max_connections=None),
        trust_env=not is_loopback(url),
    )
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=EVENT_BYTES) as streams:
        yield streams
