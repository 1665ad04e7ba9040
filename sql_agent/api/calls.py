"""Keyword arguments -> configuration keys, and a job in a process of its own (foundation/entry.py).

Why a process: torch, Ray, vLLM and agent-lightning read the environment and are patched while they are imported, once;
they keep GPU memory, threads and the process's output, and a second run, or a notebook, would meet them. It gets no
command line, but the job's function and its arguments: a TrainConfig as it was checked here.
Guarantees: what a job prints is shown as it comes; its own end, and no other process's, is waited for. Ctrl-C and a
notebook's stop reach it by themselves, once, so that it ends in order; who interrupts again interrupts it again. Exit
status 2 is a UserError with the job's words.
"""

from __future__ import annotations

import inspect
import pickle
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foundation.entry import JOB, RESULT
from foundation.errors import UserError, did_you_mean
from sql_agent.config import TrainConfig, known_keys
from sql_agent.data.given import plain

KEPT_LINES = 400
WRONG_INPUT, INTERRUPTED = 2, 130


@dataclass(frozen=True)
class Done:
    """How a process ended, the end of what it said, and the path that its job made."""

    status: int
    lines: list[str]
    path: Path | None = None

    @property
    def last_words(self) -> str:
        return "\n".join(self.lines[-5:])


def settings(overrides: Mapping[str, Any], *, arguments: Iterable[str] = ()) -> dict[str, Any]:
    """Dotted keys and plain values of overrides: {"optim.lr": 1e-5}, optim__lr=1e-5 or optim={"lr": 1e-5}.

    `arguments` are those of the call, one of which a misspelt key may mean. Raises UserError.
    """
    keys: dict[str, Any] = {}
    for key, value in _flat(overrides):
        if key not in known_keys() and key.partition(".")[0] not in ("verl", "agent"):
            raise UserError(f"{key} = {value!r:.80}: unknown key{did_you_mean(key, [*arguments, *known_keys()])}")
        keys[key] = plain(value, what=key)
    return keys


def keys(search: str = "") -> dict[str, str]:
    """The configuration keys whose name or meaning has `search` in it: type, default and meaning of each."""
    descriptions: dict[str, str] = {}
    for key, field in known_keys().items():
        annotation = field.annotation
        kind = annotation.__name__ if isinstance(annotation, type) else str(annotation)
        descriptions[key] = f"{kind} = {_default(field)!r}: {field.description or ''}"
    return {key: text for key, text in descriptions.items() if search.lower() in f"{key} {text}".lower()}


def with_keys[F: Callable[..., Any]](function: F) -> F:
    """Give a call with **overrides a signature that names each configuration key, for notebooks and help()."""
    signature = inspect.signature(function)
    *named, overrides = signature.parameters.values()
    more = [
        inspect.Parameter(
            key.replace(".", "__"), inspect.Parameter.KEYWORD_ONLY, default=_default(field), annotation=field.annotation
        )
        for key, field in known_keys().items()
        if key not in signature.parameters
    ]
    vars(function)["__signature__"] = signature.replace(parameters=[*named, *more, overrides])
    return function


def _default(field: Any) -> Any:
    return field.get_default(call_default_factory=True)


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        key = f"{prefix}{name.replace('__', '.')}"
        if isinstance(value, Mapping) and key in TrainConfig.model_fields:
            yield from _flat(value, f"{key}.")
        else:
            yield key, value


def run_job(function: str, *, quiet: bool, **arguments: Any) -> Done:
    """Call a function, "module:function", in a process of its own; it gives an exit status and what it made.

    Raises UserError for wrong input, KeyboardInterrupt.
    """
    with tempfile.TemporaryDirectory(prefix="agentgrpo-job-") as name:
        folder = Path(name)
        (folder / JOB).write_bytes(pickle.dumps((function, arguments)))
        done = run_process([sys.executable, "-P", "-m", "foundation.entry", name], quiet=quiet)
        file = folder / RESULT
        return replace(done, path=Path(file.read_text(encoding="utf-8")) if file.is_file() else None)


def run_process(command: list[str], *, quiet: bool = False) -> Done:
    """Run it, showing what it prints unless `quiet`. Raises UserError for wrong input, KeyboardInterrupt."""
    lines: deque[str] = deque(maxlen=KEPT_LINES)
    status = None
    interrupted = False
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        while status is None:
            try:
                _follow(process, lines, quiet=quiet)
                status = process.wait()
            except KeyboardInterrupt:
                if interrupted:
                    process.send_signal(signal.SIGINT)
                interrupted = True
    if interrupted or status == INTERRUPTED:
        raise KeyboardInterrupt
    if status == WRONG_INPUT:
        begin = next((n for n, line in enumerate(lines) if line.startswith("error: ")), 0)
        raise UserError("\n".join(list(lines)[begin:]).removeprefix("error: "))
    return Done(status, list(lines))


def _follow(process: subprocess.Popen[str], lines: deque[str], *, quiet: bool) -> None:
    """Show what it prints, to the end of its output. An interrupt may cost the line that just came."""
    assert process.stdout
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if not quiet:
            print(line, end="", flush=True)
