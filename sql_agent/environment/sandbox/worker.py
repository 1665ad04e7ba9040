"""The process that runs a model's Python; `pool.py` starts it.

Each run is a child of its own, forked from here, confined before it reads the code, and gone afterwards: nothing that
code does can reach the next run, this process or the parent. This process itself never runs a model's code; it reads
what its child writes, up to MOST_BYTES, and ends it at the wall limit. Speaks one JSON line per request ({"code"}) and
per reply ({"kind", "text"}). Standard library only, to start in 0.1 s.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
import traceback
import warnings
from typing import Literal, TypedDict

from sql_agent.environment.child_side import answer, requests
from sql_agent.environment.sandbox.kernel import Unconfined, confine
from sql_agent.environment.sandbox.rules import CODE, MAX_OUTPUT_CHARS, Flood, Output, Refused, Rules, run

MOST_BYTES = 4 * MAX_OUTPUT_CHARS + 4096
ERROR_CHARS = 500
# ok; error: the code raised; refused: it breaks a rule; flood: it printed too much; timeout, memory: a limit;
# crash: its process died; busy: the machine gave it no time; fault: no run was possible
Kind = Literal["ok", "error", "refused", "flood", "timeout", "memory", "crash", "busy", "fault"]
SEPARATOR = b"\n"


class Settings(TypedDict):
    """What the parent hands over on the command line."""

    modules: list[str]
    cpu_s: float
    wall_s: float
    memory_bytes: int


class Reply(TypedDict):
    """One line back."""

    kind: Kind
    text: str


def main() -> None:
    """Serve requests until the parent goes away."""
    settings = json.loads(sys.argv[1])
    os.chdir("/")
    warnings.simplefilter("ignore")
    rules = Rules(settings["modules"])
    answer(run_apart("1", rules, settings))  # the parent begins with what a first run gives
    for request in requests():
        answer(run_apart(request["code"], rules, settings))


def run_apart(code: str, rules: Rules, settings: Settings) -> Reply:
    """Run the code in a confined child of this process, and say what became of it."""
    ours, theirs = os.pipe()
    try:
        child = os.fork()
    except OSError as exc:
        os.close(ours)
        os.close(theirs)
        return {"kind": "fault", "text": f"no process can be started ({exc.strerror})"}
    if child == 0:
        _child(code, rules, settings, theirs)
    os.close(theirs)
    output, in_time = _read(ours, settings["wall_s"])
    os.close(ours)
    os.kill(child, signal.SIGKILL)  # it ended, or has said enough, or had its time
    return _reply(output, os.waitpid(child, 0)[1], in_time=in_time)


def _read(line: int, wall_s: float) -> tuple[bytes, bool]:
    """What a child wrote, and False where it went on beyond the limit of time."""
    deadline_s = time.monotonic() + wall_s
    output = b""
    while len(output) <= MOST_BYTES:
        if not select.select([line], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
            return output, False
        chunk = os.read(line, MOST_BYTES)
        if not chunk:
            break
        output += chunk
    return output, True


def _reply(output: bytes, status: int, *, in_time: bool) -> Reply:
    """The child's own words, unless it did not come to its end: hostile code may write what it likes here."""
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if ended_by in (signal.SIGPROF, signal.SIGXCPU):
        return {"kind": "timeout", "text": ""}
    if not in_time:
        return {"kind": "busy", "text": ""}
    kind, _, text = output[:MOST_BYTES].partition(SEPARATOR)
    if kind in (b"ok", b"error", b"refused", b"flood", b"memory", b"fault"):
        return {"kind": kind.decode(), "text": text.decode("utf-8", "replace")}  # type: ignore[typeddict-item]
    return {"kind": "crash", "text": ""}


def _child(code: str, rules: Rules, settings: Settings, line: int) -> None:
    """In the child: confine it, run the code, write down what came of it, and end."""
    kind, text = "fault", ""
    try:
        os.dup2(line, 1)
        confine(cpu_s=settings["cpu_s"], memory_bytes=settings["memory_bytes"])
        kind = "memory"  # of what ends this from here on: code may leave no room to tell how it ended
        kind, text = _outcome(code, rules)
    except Unconfined as exc:
        text = str(exc)
    finally:
        try:
            _write(b"%b\n%b" % (kind.encode(), text.encode("utf-8", "replace")))
        finally:
            os._exit(0)


def _outcome(code: str, rules: Rules) -> tuple[Kind, str]:
    output = Output()
    random.seed(1)  # a fork has another one
    try:
        run(code, rules, output)
    except Refused as exc:
        return "refused", str(exc)
    except Flood:
        return "flood", output.text
    except MemoryError:
        return "memory", ""
    except BaseException as exc:  # the code may raise anything
        return "error", output.text + _explain(exc)
    return "ok", output.text


def _explain(exc: BaseException) -> str:
    """The error in a line, with the number of the code's line that raised it."""
    lines = [frame.lineno for frame in traceback.extract_tb(exc.__traceback__) if frame.filename == CODE]
    try:
        text = str(exc)[:ERROR_CHARS]
    except BaseException:  # its arguments may be anything too
        text = "(no text)"
    line = f"{type(exc).__name__}: {text}".rstrip(": ")
    return line if isinstance(exc, SyntaxError) or not lines else f"{line} (line {lines[-1]})"


def _write(content: bytes) -> None:
    while content:
        content = content[os.write(1, content) :]
