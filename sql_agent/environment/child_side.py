"""What the processes do that foundation/child.py speaks with: read a JSON line, answer with another, be bounded.

Standard library only, to start in 50 ms.
"""

from __future__ import annotations

import json
import os
import resource
import select
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PARENT = os.getppid()
ORPHAN_CHECK_S = 2.0


def arguments(module: str, *settings: str) -> list[str]:
    """Of a Python that runs the `main` of one of this package's modules, and finds the standard library beside."""
    start = f"import sys; sys.path.append({str(ROOT)!r}); from {module} import main; main()"
    return ["-I", "-S", "-c", start, *settings]


def requests() -> Iterator[Any]:
    """What is asked, until the parent closes the line or is gone (a fork may hold its end open)."""
    while os.getppid() == PARENT:
        if select.select([sys.stdin], [], [], ORPHAN_CHECK_S)[0]:
            line = sys.stdin.buffer.readline()
            if not line:
                return
            yield json.loads(line)


def answer(reply: Any) -> None:
    sys.stdout.buffer.write(json.dumps(reply, ensure_ascii=False).encode() + b"\n")
    sys.stdout.buffer.flush()


def bound(max_memory_bytes: int, **limits: int) -> None:
    """Let the kernel bound this process: it may grow by `max_memory_bytes`, no file may grow, no core dump.

    `limits` are others, by the end of their name: NOFILE=32.
    """
    with open("/proc/self/statm", encoding="ascii") as statm:
        now_bytes = int(statm.read().split()[0]) * resource.getpagesize()
    for name, limit in {"AS": now_bytes + max_memory_bytes, "FSIZE": 0, "CORE": 0, **limits}.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
