"""`PARENT PROGRAM ARGUMENTS...`: an MCP server over stdio, of whose output only messages pass.

Guarantees, on Linux: it ends with the server, the server with it, and both when the thread of PARENT that started it is
gone. A server that writes more than MOST_NOISE_BYTES of what is no JSON-RPC since its last message, or a line without
an end beyond MOST_LINE_BYTES, is ended, and standard error says so: the client would read, and wait, for ever. Not
covered: a flood of messages. Standard library only, to start in 20 ms.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import IO

from foundation import supervise

MOST_NOISE_BYTES = 1 << 20
MOST_LINE_BYTES = 1 << 26


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    supervise.die_with(parent)
    dies_too = lambda: supervise.prctl(supervise.PR_SET_PDEATHSIG, signal.SIGKILL)  # noqa: E731
    try:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=dies_too)
    except OSError as exc:
        sys.exit(f"{command[0]}: {exc.strerror}")
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    assert server.stdout
    if why := passed_on(server.stdout, sys.stdout.buffer):
        server.kill()
        sys.exit(why)
    status = server.wait()
    sys.exit(status if status >= 0 else 128 - status)


def passed_on(lines: IO[bytes], to: IO[bytes]) -> str:
    """Pass messages on until the lines end, or something is wrong with them: what it is."""
    n_noise = 0
    while line := lines.readline(MOST_LINE_BYTES):
        if b'"jsonrpc"' in line and line.endswith(b"\n"):
            n_noise = 0
            to.write(line)
            to.flush()
            continue
        n_noise += len(line)
        if n_noise > MOST_NOISE_BYTES:
            return f"it wrote {n_noise} bytes to its standard output that are no message of MCP; let it log elsewhere"
    return ""
