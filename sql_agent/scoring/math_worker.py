"""The child process that compares mathematics; `math_check.py` starts it as `python math_worker.py CPU_S MEMORY_BYTES`.

sympy works on what a model wrote, and `9^{9^{9^9}}` would take for ever: so each request runs under a limit of
processor time (the kernel ends the process with SIGPROF, also inside one long C call) and of memory. Speaks one
JSON line per request and per reply: {"reference": text} -> {"ok": bool}, then {"answer": text} -> {"equal", "why"}.
"""

from __future__ import annotations

import json
import logging
import re
import resource
import signal
import sys
from typing import Any

from math_verify import parse, verify

PERCENT = re.compile(r"(?<![\d.,])(\d+(?:\.\d+)?)\s*\\?%")


def main() -> None:
    """Serve requests until the parent closes the pipe."""
    cpu_s, memory_bytes = float(sys.argv[1]), int(sys.argv[2])
    logging.disable(logging.WARNING)  # the library warns that its own time limit is off
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    compare("1", "1")  # loads what is loaded on first use
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    _say({"ready": True})
    wanted: list[Any] = []
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        if "reference" in request:
            wanted = expressions(request["reference"])
            _say({"ok": bool(wanted)})
        else:
            _say(_verdict(wanted, request["answer"]))
        signal.setitimer(signal.ITIMER_PROF, 0)


def _verdict(expected: list[Any], answer: str) -> dict[str, Any]:
    actual = expressions(answer)
    if not actual:
        return {"equal": False, "why": "no mathematics in the answer"}
    equal = same(expected, actual)
    return {"equal": equal, "why": "" if equal else f"{actual[-1]} is not {expected[-1]}"[:200]}


def compare(reference: str, answer: str) -> bool:
    return same(expressions(reference), expressions(answer))


def same(expected: list[Any], actual: list[Any]) -> bool:
    """True when any reading of the one equals any reading of the other."""
    try:
        return bool(verify(expected, actual, timeout_seconds=None))
    except (MemoryError, RecursionError):
        return False


def expressions(text: str) -> list[Any]:
    """The readings of a text: as an expression, and as it stands. Empty when there is none."""
    # In a box the whole text is one expression: "3 or 4" is then not read as 4. There a percent would be no number, and
    # any other bare % would start a comment.
    escaped = re.sub(r"(?<!\\)%", r"\\%", PERCENT.sub(r"\\frac{\1}{100}", text))
    try:
        return parse(rf"\boxed{{{escaped}}}", parsing_timeout=0) if text.strip() else []
    except (MemoryError, RecursionError):
        return []


def _say(reply: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
