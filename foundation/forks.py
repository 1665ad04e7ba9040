"""Processes that are forked on request, each from one that has loaded what it needs: the side of the processes.

Guarantees, on Linux: a child begins with what its parent had loaded and shares no state with another; it ends when
whoever asked for it lets go of its output, or is gone; whatever it started, detached or not, ends with it; its last
words are followed by how it ended. A parent forks with one thread, its own. Elsewhere than on Linux what a child
started is not ended. Not covered: a child that signals its parent, where `run` does not keep it from that
(supervise.keep_to_itself).

`line` is a socket on which one byte comes with two more sockets for each child to be forked: its own line, and what its
standard output and error are. Both ends send frames, JSON behind its length. The other side is forked.py.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from foundation import supervise
from foundation.errors import AgentGRPOError

HEADER_BYTES = 4
MOST_BYTES = 1 << 26  # of a request, which is the parent's own
WATCH_S = 0.2
ENDED = "\0ended"  # a child's last line, which its parent writes


class Garbage(AgentGRPOError):
    """What came over a line is no frame."""


def frame(content: Any) -> bytes:
    """The content as it goes over a line."""
    body = json.dumps(content).encode()
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def send_frame(line: socket.socket, content: Any) -> None:
    """Send, and wait until it is sent."""
    line.sendall(frame(content))


def receive_frame(line: socket.socket) -> Any:
    """The next frame. Raises EOFError at the line's end."""
    size = int.from_bytes(_receive(line, HEADER_BYTES), "big")
    if size > MOST_BYTES:
        raise Garbage(f"{size} bytes")
    return json.loads(_receive(line, size))


def _receive(line: socket.socket, n: int) -> bytes:
    received = bytearray()
    while len(received) < n:
        chunk = line.recv(n - len(received))
        if not chunk:
            raise EOFError
        received += chunk
    return bytes(received)


def main() -> None:
    """`python -c ... MODULES`: load these, and serve on standard input until it closes."""
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what a collection touches would be copied by each child
    Forks(line_of_input(), _run_named).serve()


def line_of_input() -> socket.socket:
    """The socket that is standard input, which is empty from now on."""
    line = socket.socket(fileno=os.dup(0))
    _read_nothing()
    return line


def _run_named(line: socket.socket) -> None:
    """A child's first frame says which function it runs, and with what."""
    request = receive_frame(line)
    where, _, name = request["run"].partition(":")
    getattr(importlib.import_module(where), name)(request["argument"], line)


class Forks:
    """A process with one thread that forks for whoever holds the other end of `line`; `run` is what children do.

    A child whose tree grows beyond `most_processes` is ended; 0 sets no bound.
    """

    def __init__(self, line: socket.socket, run: Callable[[socket.socket], None], *, most_processes: int = 0) -> None:
        self._line, self._run, self._most = line, run, most_processes
        self._outputs: dict[int, socket.socket] = {}
        self._why: dict[int, str] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = socket.socketpair()
        self._n_tasks = 0
        self._pid = os.getpid()

    def serve(self) -> None:
        """Fork and bury until the line closes; then end what is left."""
        self._wake.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        supervise.become_reaper()
        self._selector.register(self._line, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        while self._served_once():
            self._watch()
        for pid in self._outputs:
            supervise.kill(pid)
        deadline_s = time.monotonic() + supervise.ENDING_S
        while self._outputs and time.monotonic() < deadline_s:
            self._bury()
            time.sleep(0.001)

    def _served_once(self) -> bool:
        for key, _ in self._selector.select(WATCH_S if self._most and self._outputs else None):
            if key.fileobj is self._line:
                if not self._fork():
                    return False
            elif key.fileobj is self._woken:
                self._woken.recv(4096)
            else:  # nobody holds the other end of its output any more
                self._selector.unregister(key.fileobj)
                supervise.kill(key.data)
        self._bury()
        return True

    def _fork(self) -> bool:
        try:
            message, descriptors, _, _ = socket.recv_fds(self._line, 1, 2)
        except OSError:
            return False
        if not message:
            return False
        line, output = (socket.socket(fileno=descriptor) for descriptor in descriptors)
        try:
            pid = os.fork()
        except OSError as exc:
            _tell(output, 1, f"no process can be started ({exc.strerror})")
            line.close()
            output.close()
            return True
        if pid == 0:
            self._be_child(line, output)
        line.close()
        self._outputs[pid] = output
        self._selector.register(output, selectors.EVENT_READ, data=pid)
        return True

    def _be_child(self, line: socket.socket, output: socket.socket) -> None:
        """In the child: nothing of the parent's but its memory, and never a way back."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._selector.close()
            for inherited in (self._line, self._woken, self._wake, *self._outputs.values()):
                inherited.close()
            os.setsid()
            supervise.die_with(self._pid)
            _speak_through(output)
            _draw_anew()
            self._run(line)
            status = 0
        except (EOFError, ConnectionError):  # whoever asked is gone
            pass
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
            os._exit(status)

    def _bury(self) -> None:
        """Take note of who ended, end what they left, and tell how they ended."""
        ended = dict(self._reaped())
        if not ended:
            return
        deadline_s = time.monotonic() + supervise.ENDING_S
        while (strays := self._strays(ended)) and time.monotonic() < deadline_s:
            for stray in strays:
                for pid in (stray, *supervise.descendants(stray)):
                    supervise.kill(pid)
            time.sleep(0.001)
            ended |= dict(self._reaped())
        for pid, status in ended.items():
            if output := self._outputs.pop(pid, None):
                with contextlib.suppress(KeyError):
                    self._selector.unregister(output)
                _tell(output, status, self._why.pop(pid, ""))
                output.close()

    def _reaped(self) -> Iterator[tuple[int, int]]:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid in self._outputs:
                    yield pid, os.waitstatus_to_exitcode(status)

    def _strays(self, ended: dict[int, int]) -> list[int]:
        """What ended children left to this process: its children that it did not fork."""
        return [pid for pid in supervise.children() if pid not in self._outputs or pid in ended]

    def _watch(self) -> None:
        """End a child that floods the machine with processes. How many run in all costs nothing to know."""
        if not (self._most and self._outputs):
            return
        n_tasks = supervise.tasks_of_machine()
        if n_tasks - self._n_tasks <= self._most:
            self._n_tasks = min(n_tasks, self._n_tasks or n_tasks)
            return
        self._n_tasks = n_tasks
        for pid in self._outputs:
            tree = list(supervise.descendants(pid))
            if len(tree) > self._most:
                self._why[pid] = f"it ran more than {self._most} processes"
                self._n_tasks = 0
                for process in (pid, *tree):
                    supervise.kill(process)


def _tell(output: socket.socket, status: int, why: str) -> None:
    with contextlib.suppress(OSError):  # full, or nobody reads
        output.send(f"\n{ENDED} {status} {why}\n".encode(), socket.MSG_DONTWAIT)


def _speak_through(output: socket.socket) -> None:
    """Standard output and error go there, line by line, and standard input is empty."""
    _read_nothing()
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    output.close()
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = _written(1), _written(2)


def _read_nothing() -> None:
    with open(os.devnull, "rb") as null:
        os.dup2(null.fileno(), 0)


def _written(descriptor: int) -> TextIO:
    return open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _draw_anew() -> None:
    """Children would draw the same numbers, where Python does not see to it itself."""
    random.seed()
    for name, function in (("numpy.random", "seed"), ("torch", "seed")):
        if module := sys.modules.get(name):
            getattr(module, function)()
