"""A child process that answers one JSON line with another: for work that may hang, bloat or crash whatever runs it.

Guarantees: an answer within the time given, or Gone and the child is dead; writing never blocks (PIPE_BYTES); the child
sees none of this process's environment but INHERITED, so no secret; Ctrl-C reaches the parent only, which ends its
children in order; what a fork inherited is left alone. One thread at a time. What the child limits is its own affair.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from typing import Any, Literal

PIPE_BYTES = 1 << 18  # a request has to fit
INHERITED = ("LD_LIBRARY_PATH",)  # a Python may need it to start


class Gone(Exception):
    """No answer came and the child is ended: it took too long, or it died."""

    def __init__(self, kind: Literal["timeout", "crash"]) -> None:
        super().__init__(kind)
        self.kind: Literal["timeout", "crash"] = kind


class Child:
    """`python ARGUMENTS` and its pipes. `hello` is its first line; raises Gone when none comes within `start_s`."""

    def __init__(self, arguments: list[str], *, start_s: float) -> None:
        self._parent = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            pipesize=PIPE_BYTES,
            env={name: os.environ[name] for name in INHERITED if name in os.environ},
            start_new_session=True,
        )
        self.hello = self._receive(start_s)

    @property
    def alive(self) -> bool:
        """True while it can be asked by this process."""
        return self._parent == os.getpid() and self._process.poll() is None

    def ask(self, request: Any, *, timeout_s: float) -> Any:
        """The answer to one request. Raises Gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
        except BrokenPipeError:
            self.kill()
            raise Gone("crash") from None
        return self._receive(timeout_s)

    def _receive(self, timeout_s: float) -> Any:
        assert self._process.stdout is not None
        pipe, line = self._process.stdout.fileno(), bytearray()
        deadline_s = time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        while not line.endswith(b"\n"):
            in_time = poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000)
            chunk = os.read(pipe, PIPE_BYTES) if in_time else b""
            if not chunk:
                self.kill()
                raise Gone("crash" if in_time else "timeout")
            line += chunk
        return json.loads(line)

    def kill(self) -> None:
        """End it now and release its pipes; only the pipes where another process started it."""
        if self._parent == os.getpid():
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.returncode = self._process.returncode or 0
