"""Processes that are forked on request (forks.py): the side of whoever asks them.

Guarantees: an answer within the time given, or Died with the reason, and the process and all that it started are ended;
an answer that is no frame, or longer than allowed, and output beyond its bound end it too. It ends when this process
does, however that went. All but Nursery.close is for one event loop, whose thread must last as long as the processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from foundation import supervise
from foundation.errors import AgentGRPOError
from foundation.forks import ENDED, HEADER_BYTES, frame

ROOT = Path(__file__).resolve().parents[__name__.count(".")]  # where the package lies, installed or not
START = f"import sys; sys.path.append({str(ROOT)!r}); from foundation.forks import main; main()"
KEPT_BYTES = 2000
CHUNK_BYTES = 1 << 16
END_S = 10.0  # of a process that is killed, with what it started
Reason = Literal["exit", "signal", "timeout", "output", "processes", "garbage", "memory", "start"]


class Died(AgentGRPOError):
    """A process gave no answer and is ended. The text says how, for people."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason: Reason = reason


class Forked:
    """One process that was forked by whoever listens on `parent`. `hear` is told what it prints, up to the bound.

    One question at a time.
    """

    def __init__(self, *, most_bytes: int, most_printed: int, hear: Callable[[str], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self.line, self.theirs = socket.socketpair()
        self._output, self.their_output = socket.socketpair()
        self._most_bytes, self._most_printed, self._hear = most_bytes, most_printed, hear
        self._output_tail, self._n_printed = b"", 0
        self._why: tuple[Reason, str] | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self.is_clean = True  # for whoever keeps it
        for ours in (self.line, self._output):
            ours.setblocking(False)
        self._loop.add_reader(self._output, self._read_output)

    @property
    def alive(self) -> bool:
        """False once it has ended, or is told to."""
        return not self._ended.done() and self._why is None

    @property
    def over_now(self) -> bool:
        """True once it and what it started have ended."""
        return self._ended.done()

    @property
    def how(self) -> Died:
        """How it ended, or is told to, as far as is known."""
        printed, _, end = self._output_tail.decode("utf-8", "replace").rpartition(f"\n{ENDED} ")
        status, _, why = end.strip().partition(" ")
        reason, text = self._why or _of_status(status, why)
        words = " ".join(printed.split())[-300:]
        return Died(reason, f"{text}; it said: {words}" if words else text)

    async def ask(self, request: Any, *, timeout_s: float) -> Any:
        """What it answers; None asks for what it says by itself. Raises Died."""
        self._output_tail, self._n_printed = b"", 0
        try:
            async with asyncio.timeout(timeout_s):
                if request is not None:
                    await self._loop.sock_sendall(self.line, frame(request))
                return await self._frame()
        except TimeoutError:
            self.kill("timeout", f"gave no answer within {timeout_s:g} s")
        except (OSError, EOFError):
            pass
        except ValueError as exc:
            self.kill("garbage", f"gave an answer that cannot be read ({exc})")
        except BaseException:
            self.kill("exit", "was given up")
            raise
        raise await self.died()

    async def _frame(self) -> Any:
        size = int.from_bytes(await self._bytes(HEADER_BYTES), "big")
        if size > self._most_bytes:
            raise ValueError(f"{size} bytes, where {self._most_bytes} are allowed")
        return json.loads(await self._bytes(size))

    async def _bytes(self, n: int) -> bytes:
        received = bytearray()
        while len(received) < n:
            chunk = await self._loop.sock_recv(self.line, min(n - len(received), CHUNK_BYTES))
            if not chunk:
                raise EOFError
            received += chunk
        return bytes(received)

    def kill(self, reason: Reason = "exit", text: str = "was ended") -> None:
        """End it, and what it started, without waiting. The first reason counts."""
        if self._why is None:
            self._why = reason, text
        with contextlib.suppress(OSError):
            self._output.shutdown(socket.SHUT_WR)  # whoever forked it sees that

    async def died(self) -> Died:
        """How it ended, once it has."""
        await self.over()
        return self.how

    async def over(self) -> None:
        """Returns when it and what it started have ended."""
        await asyncio.wait({self._ended}, timeout=END_S)

    def _read_output(self) -> None:
        try:
            chunk = self._output.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._loop.remove_reader(self._output)
            self._output.close()
            self.line.close()
            if not self._ended.done():
                self._ended.set_result(None)
            return
        self._n_printed += len(chunk)
        self._output_tail = (self._output_tail + chunk)[-KEPT_BYTES:]
        if self._n_printed > self._most_printed:
            self.kill("output", f"printed more than {self._most_printed >> 10} KiB")
        elif self._hear and ENDED.encode() not in chunk:
            self._hear(chunk.decode("utf-8", "replace"))


def _of_status(status: str, why: str) -> tuple[Reason, str]:
    if why:
        return ("processes" if "more than" in why else "start"), why
    try:
        code = int(status)
    except ValueError:
        return "exit", "ended in an unknown way"
    if code >= 0:
        return "exit", f"ended its process with status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return "signal", f"was ended by {name}"


async def fork(parent: socket.socket, child: Forked) -> None:
    """Have `child` forked by whoever listens on the other end of `parent`."""
    deadline_s = time.monotonic() + END_S
    try:
        while True:
            try:
                socket.send_fds(parent, [b"f"], [child.theirs.fileno(), child.their_output.fileno()])
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    child.kill("start", "was not started: its parent takes no request")
                    break
                await asyncio.sleep(0.01)
    except OSError:
        child.kill("start", "was not started: its parent is gone")
    finally:
        child.theirs.close()
        child.their_output.close()


class Nursery:
    """A process that has loaded `modules` and forks children, which run a function by name. It begins with the first.

    Its children see the environment and working directory of this process as they were then.
    """

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None

    async def run(self, child: Forked, function: str, argument: Any) -> Forked:
        """Fork the child, which runs MODULE:FUNCTION with the argument and its line."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._start()
        assert self._line
        await fork(self._line, child)
        with contextlib.suppress(OSError):  # it is gone already, which its first answer will show
            await asyncio.get_running_loop().sock_sendall(child.line, frame({"run": function, "argument": argument}))
        return child

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                supervise.supervised(sys.executable, "-c", START, *self._modules),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        ours.setblocking(False)
        self._line = ours

    def close(self) -> None:
        """End it and all its children, and wait for that."""
        if self._line:
            self._line.close()
        if self._process:
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._process.terminate()
                self._process.wait()
        self._process = self._line = None
