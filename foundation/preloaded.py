"""A `python` that has loaded a module, and all that it imports: programs are forked from one process that did.

Guarantees, on Linux: a program has the arguments, environment, working directory and open files of whoever started it,
ends as `python` would, and ends with its starter and with the process that made this `python`. Where the loaded process
is gone, or loads in vain, the program is started by a plain Python instead.
What was taken from the environment while the module loaded is of the environment of `Preloaded`: where the module has
a function `begin`, it is called in each program before it starts, to take it anew.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import os
import runpy
import select
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Callable
from pathlib import Path

from foundation import supervise
from foundation.forks import ENDED, Forks, line_of_input, receive_frame, send_frame

ROOT = Path(__file__).resolve().parents[__name__.count(".")]  # where the package lies, installed or not
CALL = f"import sys; sys.path.append({str(ROOT)!r}); import {__name__} as preloaded; preloaded."
FIRST_FREE = 256  # descriptors that programs get have lower numbers
MOST_FILES = 250  # that one message may carry
LOOK_S = 0.5


class Preloaded:
    """Loads `module` in a process of its own, in the environment of now and `environment`; `executable` is run."""

    def __init__(self, module: str, **environment: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="python-"))
        self.executable, place = self._folder / "python", self._folder / "line"
        ask = shlex.join([sys.executable, "-I", "-S", "-c", f"{CALL}ask()", str(place), sys.executable])
        self.executable.write_text(f'#!/bin/sh\nexec {ask} "$@"\n', encoding="utf-8")
        self.executable.chmod(0o700)
        line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        line.bind(str(place))  # programs may ask from now on
        with line:
            self._process = subprocess.Popen(
                supervise.supervised(sys.executable, "-c", f"{CALL}main()", str(self.executable), module),
                stdin=line.fileno(),
                stdout=subprocess.DEVNULL,  # what loads in vain here tells it in the plain Python that follows
                stderr=subprocess.DEVNULL,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    def close(self) -> None:
        """End it and its programs."""
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def main() -> None:
    """`EXECUTABLE MODULE`: load it, and fork for whoever asks on the socket that is standard input."""
    executable, name = sys.argv[1:]
    line = line_of_input()
    begin = getattr(importlib.import_module(name), "begin", lambda: None)
    gc.collect()
    gc.freeze()  # what a collection touches would be copied by each program
    Forks(line, lambda theirs: _be_program(theirs, executable, begin)).serve()


def ask() -> None:
    """`PLACE PYTHON ARGUMENTS...`: be the program that `PYTHON ARGUMENTS...` is, forked by whoever hears PLACE."""
    place, python, *arguments = sys.argv[1:]
    files = sorted(int(name) for name in os.listdir("/proc/self/fd"))
    files = [descriptor for descriptor in files if _is_open(descriptor)]
    (line, their_line), (output, their_output) = socket.socketpair(), socket.socketpair()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.connect(place)
            socket.send_fds(to, [b"f"], [their_line.fileno(), their_output.fileno()])
        their_line.close()
        their_output.close()
        request = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd(), "files": files}
        send_frame(line, request)
        socket.send_fds(line, [b"f"], files)
        printed = _read_all(output)
    except OSError:
        os.execv(python, [python, *arguments])
    _, _, end = printed.decode("utf-8", "replace").rpartition(ENDED)
    status = end.split(maxsplit=1)[:1]
    supervise.end_like(int(status[0]) if status else 1)


def _read_all(output: socket.socket) -> bytes:
    """All that comes, to its end, or to that of whoever started this process."""
    received, parent = bytearray(), os.getppid()
    while os.getppid() == parent:
        if select.select([output], [], [], LOOK_S)[0]:
            chunk = output.recv(4096)
            if not chunk:
                break
            received += chunk
    return bytes(received)


def _is_open(descriptor: int) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_GETFD)
    except OSError:  # that of the listing itself
        return False
    return True


def _be_program(line: socket.socket, executable: str, begin: Callable[[], None]) -> None:
    """In the forked process: the program that was asked for, to its end."""
    request = receive_frame(line)
    _, descriptors, _, _ = socket.recv_fds(line, 1, MOST_FILES)
    line.close()
    apart = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, FIRST_FREE) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for descriptor, number in zip(apart, request["files"], strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["folder"])
    _be_in(request["environment"])
    status = 1
    try:
        importlib.import_module("multiprocessing.spawn").set_executable(executable)
        begin()
        status = _run(request["arguments"])
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
            atexit._run_exitfuncs()
            sys.stdout.flush()
        os._exit(status)


def _be_in(environment: dict[str, str]) -> None:
    """What is the same stays where it is: setproctitle finds its place behind it."""
    before = dict(os.environ)
    for name in before.keys() - environment.keys():
        del os.environ[name]
    os.environ.update({k: v for k, v in environment.items() if before.get(k) != v})


def _run(arguments: list[str]) -> int:
    """Python's exit status of its command line."""
    while arguments and arguments[0].startswith("-") and arguments[0] not in ("-c", "-m"):
        arguments = arguments[2 if arguments[0] in ("-X", "-W") else 1 :]
    what, *rest = arguments
    try:
        if what == "-m":
            sys.argv, sys.path[0] = rest, os.getcwd()
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            text = rest.pop(0) if what == "-c" else Path(what).read_text(encoding="utf-8")
            program = sys.modules["__main__"] = types.ModuleType("__main__")
            if what != "-c":
                program.__file__ = what
            sys.argv = [what, *rest]
            sys.path[0] = "" if what == "-c" else str(Path(what).parent)
            exec(compile(text, what, "exec"), program.__dict__)
    except SystemExit as exc:
        if isinstance(exc.code, str):
            print(exc.code, file=sys.stderr)
        return exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException as exc:
        sys.excepthook(type(exc), exc, exc.__traceback__)
        return 1
    return 0
