"""Keyword arguments -> a command line, and the command in a process of its own.

Guarantees: what a command prints is shown as it comes; its own end, and no other process's, is waited for. Ctrl-C and a
notebook's stop reach it by themselves, once, so that it ends in order; who interrupts again interrupts it again. Exit
status 2 is a UserError with the command's words.
"""

from __future__ import annotations

import inspect
import json
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from foundation.errors import UserError, did_you_mean
from sql_agent.api.background import Job, current
from sql_agent.api.given import plain
from sql_agent.config import COMMAND, TrainConfig, known_keys

KEPT_LINES = 400
WRONG_INPUT, INTERRUPTED = 2, 130
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Done:
    """How a command ended, and the end of what it said."""

    status: int
    lines: list[str]

    def told(self, prefix: str) -> str:
        """What the last line that begins with `prefix` says behind it, or ""."""
        return next((line.removeprefix(prefix) for line in reversed(self.lines) if line.startswith(prefix)), "")


def settings(overrides: Mapping[str, Any], *, arguments: Iterable[str] = ()) -> list[str]:
    """--set flags of overrides: {"optim.lr": 1e-5}, optim__lr=1e-5 or optim={"lr": 1e-5}. Raises UserError.

    `arguments` are those of the call, one of which a misspelt key may mean.
    """
    flags: list[str] = []
    for key, value in _flat(overrides, ""):
        if key not in known_keys() and key.partition(".")[0] not in ("verl", "agent"):
            raise UserError(f"{key} = {value!r:.80}: unknown key{did_you_mean(key, [*arguments, *known_keys()])}")
        flags += ["--set", f"{key}={json.dumps(plain(value, what=key), ensure_ascii=False)}"]
    return flags


def keys(search: str = "") -> dict[str, str]:
    """The configuration keys whose name or meaning has `search` in it: type, default and meaning of each."""
    told = {
        key: f"{_type(field)} = {_default(field)!r}: {field.description or ''}" for key, field in known_keys().items()
    }
    return {key: text for key, text in told.items() if search.lower() in f"{key} {text}".lower()}


def with_keys[F: Callable[..., Any]](function: F) -> F:
    """Give a call with **overrides a signature that names each configuration key, for notebooks and help()."""
    signature = inspect.signature(function)
    *named, rest = signature.parameters.values()
    more = [
        inspect.Parameter(
            key.replace(".", "__"), inspect.Parameter.KEYWORD_ONLY, default=_default(field), annotation=field.annotation
        )
        for key, field in known_keys().items()
        if key not in signature.parameters
    ]
    vars(function)["__signature__"] = signature.replace(parameters=[*named, *more, rest])
    return function


def _default(field: Any) -> Any:
    return field.get_default(call_default_factory=True)


def _type(field: Any) -> str:
    return getattr(field.annotation, "__name__", "") if isinstance(field.annotation, type) else str(field.annotation)


def _flat(tree: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for name, value in tree.items():
        key = f"{prefix}{name.replace('__', '.')}"
        is_section = isinstance(value, Mapping) and (key in TrainConfig.model_fields)
        pairs += _flat(value, f"{key}.") if is_section else [(key, value)]
    return pairs


def command_line(name: str, *flags: str) -> list[str]:
    """The command line of `agentgrpo NAME`."""
    return [*COMMAND, name, *flags]


def run_command(command: list[str], *, quiet: bool = False) -> Done:
    """Run it, showing what it prints unless `quiet`. Raises UserError for wrong input, KeyboardInterrupt."""
    lines: deque[str] = deque(maxlen=KEPT_LINES)
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    status, interrupted, job = None, False, current.get()
    with subprocess.Popen(
        command, text=True, errors="replace", start_new_session=job is not None, **streams
    ) as process:
        if job:
            job.took(process)
        while status is None:
            try:
                _follow(process, lines, quiet=quiet, job=job)
                status = process.wait()
            except KeyboardInterrupt:
                if interrupted:
                    process.send_signal(signal.SIGINT)
                interrupted = True
    if interrupted or (status == INTERRUPTED and not job):
        raise KeyboardInterrupt
    if status == WRONG_INPUT:
        begin = next((n for n, line in enumerate(lines) if line.startswith("error: ")), 0)
        raise UserError("\n".join(list(lines)[begin:]).removeprefix("error: "))
    return Done(status, list(lines))


def _follow(process: subprocess.Popen[str], lines: deque[str], *, quiet: bool, job: Job[Any] | None) -> None:
    """Show what it prints, to the end of its output. An interrupt may cost the line that just came."""
    assert process.stdout
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if job:
            job.lines = list(lines)
        if not quiet:
            print(line, end="", flush=True)
