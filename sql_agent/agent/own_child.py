"""The processes of own tools and episodes: one that loads the sources of an agent, and those that it forks for calls.

Guarantees: `host` says what the sources hold, or what is wrong with them, and then forks; each `play` runs one call or
episode at a time, in its main thread, within the limits of time and memory; a tool's text is cut before it is sent.
After each it says whether the process is as it was, what the modules that this one uses hold included. Not covered:
what a call changed within others, which stays. Speaks frames of foundation/forks.py with own_remote.py.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import decimal
import gc
import inspect
import json
import locale
import os
import resource
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import thread
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from foundation import supervise
from foundation.background import named, ordinary
from foundation.errors import UserError
from foundation.forks import Forks, receive_frame, send_frame
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.own_function import EncodedResult, EpisodeFunction, load_episode, played
from sql_agent.agent.own_tools import checked_result, load
from sql_agent.agent.tool import Environment, EpisodeContext, Kind, Tool, said_by
from sql_agent.errors import EpisodeFault, Fault, ToolFault
from sql_agent.records import Question

PATIENCE_S = 0.5  # of a coroutine that is cancelled
MOST_FAULT_CHARS = 2000
AGAIN_S = 0.2  # a call that swallows its end gets it again
SIGNALS = [number for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP)]
HANDLER = vars(signal)["_signal"].getsignal  # signal.getsignal looks each up in an enum
WAITING = vars(thread)["_worker"].__code__
LIMITS = [value for name, value in vars(resource).items() if name.startswith("RLIMIT_")]
NAMES = (*globals().values(), builtins, json.decoder, json.encoder)
USED = [vars(value) for value in NAMES if isinstance(value, ModuleType)]
Loaded = tuple[list[Tool], list[Kind]]


class _TimeUp(BaseException):
    """Raised in a call by the timer. No Exception: a tool that catches those is not meant to catch it."""


class Alone:
    """The Worker of a process that has nothing else to do: its coroutines never wait, and are driven by `drive`."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.overran = False

    async def call(self, function: Callable[..., Any], *args: Any, timeout_s: float, **kwargs: Any) -> Any:
        """What a function gives, sync or async. Raises TimeoutError; ToolFault for what would end the process.

        What it gives or raises after its limit is a TimeoutError.
        """
        limit_at_s = time.monotonic() + timeout_s
        try:
            with _timer(timeout_s):
                value = function(*args, **kwargs)
                if inspect.isawaitable(value):
                    signal.setitimer(signal.ITIMER_REAL, timeout_s + PATIENCE_S, AGAIN_S)
                    if self.loop is None:
                        self.loop = asyncio.new_event_loop()
                        asyncio.set_event_loop(self.loop)
                    value = self.loop.run_until_complete(asyncio.wait_for(value, timeout_s))
            if time.monotonic() < limit_at_s:
                return checked_result(value)
            raise _TimeUp
        except BaseException as exc:
            if isinstance(exc, _TimeUp) or time.monotonic() >= limit_at_s:
                self.overran = True
                raise TimeoutError from None
            if isinstance(exc, MemoryError):
                raise ToolFault("needed more memory than agent.tool_memory_mib allows", reason="memory") from exc
            if isinstance(exc, Exception):
                raise ordinary(exc) from exc
            raise ToolFault(f"raised {named(exc)}", reason="exit") from exc

    @property
    def goes_on(self) -> bool:
        """Whether a call left something that runs: a task, a callback in the loop, or a thread other than a pool's
        that waits for work."""
        frames, ours = sys._current_frames(), threading.get_ident()
        if any(n != ours and frame.f_code is not WAITING for n, frame in frames.items()):
            return True
        if self.loop is None:
            return False
        callbacks = [*vars(self.loop)["_scheduled"], *vars(self.loop)["_ready"]]
        return bool(asyncio.all_tasks(self.loop)) or any(not callback.cancelled() for callback in callbacks)

    def next_frame(self, line: socket.socket) -> Any:
        """The next request; until then, tasks that calls left in the loop go on."""
        if self.loop:
            with contextlib.suppress(Exception):
                self.loop.add_reader(line.fileno(), self.loop.stop)
                self.loop.run_forever()
                self.loop.remove_reader(line.fileno())
        return receive_frame(line)


@contextmanager
def _timer(timeout_s: float) -> Iterator[None]:
    signal.setitimer(signal.ITIMER_REAL, timeout_s, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _time_up(_signal: int, _frame: Any) -> None:
    raise _TimeUp


def drive(work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine gives that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("it waited")


def host(argument: dict[str, Any], line: socket.socket) -> None:
    """Load the sources, say what they hold, and fork a process for each that is asked for, until the line closes."""
    sys.path[:] = argument["path"]
    worker = Alone()
    try:
        loaded = [load(source, worker) for source in argument["sources"]]
        episode = load_episode(argument["episode"]) if argument["episode"] else None
    except UserError as exc:
        send_frame(line, {"error": str(exc)})
        return
    gc.collect()
    gc.freeze()
    n_threads = len(os.listdir("/proc/self/task"))
    send_frame(line, {"sources": [_described(*entry) for entry in loaded], "threads": n_threads})

    def play(ours: socket.socket) -> None:
        supervise.keep_to_itself()
        Player(loaded, episode, worker, argument["memory_bytes"]).serve(ours)

    Forks(line, play, most_processes=argument["most_processes"]).serve()


def _described(tools: list[Tool], kinds: list[Kind]) -> dict[str, Any]:
    environments = [{"source": kind.source, "rewards": kind.rewards, "tools": _specs_of(kind.tools)} for kind in kinds]
    return {"tools": _specs_of(tools), "environments": environments}


def _specs_of(tools: list[Tool]) -> list[Any]:
    return [tool.spec["function"] for tool in tools]


class Player:
    """A process that runs calls: of tools, of one environment at a time, and episodes."""

    def __init__(self, loaded: list[Loaded], episode: EpisodeFunction | None, worker: Alone, memory_bytes: int) -> None:
        self._kinds = [kind for _, kinds in loaded for kind in kinds]
        self._tools = [tool for tools, _ in loaded for tool in tools]
        self._episode_function, self._worker = episode, worker
        self._environment: Environment | None = None
        signal.signal(signal.SIGALRM, _time_up)
        most_data = _data_bytes() + memory_bytes
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (most_data, most_data))
        self._half_data = most_data - memory_bytes // 2
        self._as_it_was = _state()
        self._held = [_Held(names, [*names.values()]) for names in USED]
        self._held.append(_Held(sys.modules, []))  # to touch a module would copy it

    def serve(self, line: socket.socket) -> None:
        """Answer until the line closes. What only a process can survive ends this one, with its words on stderr."""
        while True:
            request = self._worker.next_frame(line)
            try:
                answer = {"value": drive(self._answer(request))}
            except Fault as fault:
                reason = getattr(fault, "reason", fault.kind)
                answer = {"fault": (str(fault)[:MOST_FAULT_CHARS], fault.kind, reason)}
            send_frame(line, answer | {"clean": self._is_clean() and "fault" not in answer})

    async def _answer(self, request: dict[str, Any]) -> Any:
        what = request["do"]
        if what == "call":
            return await self._call(self._tools, request)
        if what == "episode":
            return await self._episode(request)
        if what == "reset":
            self._environment = environment = self._kinds[request["kind"]].begin(request["timeout_s"])
            question = Question.model_validate_json(request["question"])
            return await environment.reset(question, max_chars=request["max_chars"])
        assert self._environment
        if what == "method":
            return await self._call(self._environment.tools(), request)
        return await (self._environment.reward() if what == "reward" else self._environment.close())

    async def _call(self, tools: Iterable[Tool], request: dict[str, Any]) -> dict[str, Any]:
        context = EpisodeContext(**{key: request[key] for key in ("n_turns", "timeout_s", "max_chars")})
        tool = next(tool for tool in tools if tool.name == request["name"])
        text = await tool.invoke(context, request["raw"])
        return {"text": text, "outcome": context.tool_calls[-1].outcome}

    async def _episode(self, request: dict[str, Any]) -> EncodedResult | None:
        """What the function gave; None where it took too long."""
        question, llm = Question.model_validate_json(request["question"]), LLMEndpoint(**request["llm"])
        try:
            result = await self._worker.call(
                played, self._episode_function, question, llm, request["specs"], timeout_s=request["timeout_s"]
            )
        except Exception as exc:
            if self._worker.overran:
                return None
            traceback.print_exc(limit=-5)
            failure = str(exc) if isinstance(exc, ToolFault) else f"raised {said_by(exc)}"
            raise EpisodeFault(f"agent.episode {failure}"[:500]) from exc
        if isinstance(result, Fault):
            raise result
        return result

    def _is_clean(self) -> bool:
        with contextlib.suppress(BaseException):  # what cannot be seen is not as it was
            return (
                not (self._worker.overran or self._worker.goes_on)
                and _data_bytes() < self._half_data
                and len(os.listdir("/proc/self/fd")) < resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
                and all(held.as_it_was for held in self._held)
                and _state() == self._as_it_was
            )
        return False


class _Held:
    """The first names of a namespace in their order, and what they hold."""

    def __init__(self, names: dict[str, Any], values: list[Any]) -> None:
        self._names, self._keys, self._values = names, [*names], values

    @property
    def as_it_was(self) -> bool:
        """Whether the names are there still, with the same values; others may have come behind them."""
        if [*self._names][: len(self._keys)] != self._keys:
            return False
        return not self._values or [*self._names.values()][: len(self._values)] == self._values


def _data_bytes() -> int:
    """Writable memory of this process, as RLIMIT_DATA counts it."""
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return 0
    try:
        return int(os.read(file, 100).split()[5]) * resource.getpagesize()
    finally:
        os.close(file)


def _state() -> tuple[Any, ...]:
    try:
        directory = os.getcwd()
    except OSError:
        directory = ""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        has_children = True
    except ChildProcessError:
        has_children = False
    mask = os.umask(0o77)  # to be known it must be set
    os.umask(mask)
    streams = [(stream.st_dev, stream.st_ino) for stream in map(os.fstat, range(3))]
    handlers = [HANDLER(n) for n in SIGNALS]
    limits = [resource.getrlimit(limit) for limit in LIMITS]
    timers = [signal.getitimer(timer) for timer in (signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)]
    numbers = decimal.getcontext()
    return (
        *(directory, mask, has_children, vars(os.environ)["_data"].copy(), limits, os.getresuid(), os.getresgid()),
        *(handlers, signal.pthread_sigmask(signal.SIG_BLOCK, ()), timers),
        *(os.nice(0), os.sched_getscheduler(0), os.sched_getaffinity(0)),
        *(id(sys.stdout), sys.stdout.closed, id(sys.stderr), sys.stderr.closed, streams),
        *(locale.setlocale(locale.LC_ALL), list(sys.path), socket.getdefaulttimeout()),
        *(sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits(), gc.isenabled()),
        *(sys.gettrace(), sys.getprofile(), numbers.prec, numbers.rounding),
        any(action == "error" for action, *_ in warnings.filters),  # what is imported later may add others
    )
