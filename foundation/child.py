"""A child process that answers one JSON line with another: for work that may hang, bloat or crash whatever runs it.

Guarantees: an answer within the time given, or Gone and the child is dead; whatever keeps a child from starting is Gone
too; a Child that is dropped ends its process. The child sees none of this process's environment but INHERITED and
what `environment` holds, so no other secret; Ctrl-C reaches the parent only, which ends its children in order; what a
fork inherited is left alone. It takes one descriptor here and no pipe, whose buffers Linux counts per user. One thread
at a time. What the child limits is its own affair.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from typing import Any, Literal

from foundation.errors import AgentGRPOError

CHUNK_BYTES = 1 << 18
INHERITED = ("LD_LIBRARY_PATH",)  # a Python may need it to start
# What any program needs to find its files, to read and write text, and to trust whom the machine trusts; no name of
# these is a secret's.
TRUSTED = ("CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE")
USUAL = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")


class Gone(AgentGRPOError):
    """No answer came and the child is ended: it took too long, or it died. The text is for people."""

    def __init__(self, kind: Literal["timeout", "crash"], why: str = "") -> None:
        super().__init__(why or kind)
        self.kind: Literal["timeout", "crash"] = kind


def usual_environment(*more: str) -> dict[str, str]:
    """The variables of this process that a program of others may see, and those named."""
    return {name: os.environ[name] for name in (*USUAL, *TRUSTED, *INHERITED, *more) if name in os.environ}


class Child:
    """`python ARGUMENTS` and a line to it. `hello` is its first line; raises Gone when none comes within `start_s`."""

    def __init__(self, arguments: list[str], *, start_s: float, environment: Mapping[str, str] | None = None) -> None:
        self._parent = os.getpid()
        try:
            self._process, self._line = _start(arguments, environment or {})
        except OSError as exc:
            raise Gone("crash", f"{exc.strerror}; run fewer at once, or raise `ulimit -n` and `ulimit -u`") from exc
        self.kill = weakref.finalize(self, _end, self._parent, self._process, self._line)
        self.hello = self._receive(time.monotonic() + start_s)

    @property
    def alive(self) -> bool:
        """True while it can be asked by this process."""
        return self._parent == os.getpid() and self._process.poll() is None

    def ask(self, request: Any, *, timeout_s: float) -> Any:
        """The answer to one request. Raises Gone."""
        return self._receive(time.monotonic() + timeout_s, send=json.dumps(request).encode() + b"\n")

    def _receive(self, deadline_s: float, *, send: bytes = b"") -> Any:
        answer = bytearray()
        try:
            self._wait_until(deadline_s)
            self._line.sendall(send)
            while not answer.endswith(b"\n"):
                self._wait_until(deadline_s)
                chunk = self._line.recv(CHUNK_BYTES)
                if not chunk:
                    raise ConnectionResetError
                answer += chunk
        except OSError as exc:
            self.kill()
            raise Gone("timeout" if isinstance(exc, TimeoutError) else "crash") from None
        return json.loads(answer)

    def _wait_until(self, deadline_s: float) -> None:
        self._line.settimeout(max(1e-6, deadline_s - time.monotonic()))  # 0 would mean: without waiting


def _start(arguments: list[str], more: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in INHERITED if name in os.environ} | {**more},
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
    return process, ours


def _end(parent: int, process: subprocess.Popen[bytes], line: socket.socket) -> None:
    """End it now and release its line; only the line where another process started it."""
    if parent == os.getpid():
        process.kill()
        process.wait()
    line.close()
    process.returncode = process.returncode or 0
