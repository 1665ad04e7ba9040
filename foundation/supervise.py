"""Runs a program and leaves nothing of it behind: `python -I -S supervise.py PARENT PROGRAM ARGUMENTS...`

Guarantees, on Linux: whatever the program starts, detached or not, is ended when the program ends, when this process is
told to (SIGTERM), and when PARENT is gone, however that went; this process ends as the program did. So whoever reads
the program's lines finds their end. Elsewhere than on Linux only the program itself is ended. Not covered: descendants
of another user, and detached ones of a program that kills this process. Standard library only, to start in 20 ms.
forks.py ends what its processes leave behind by the same means.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from types import FrameType

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38  # prctl(2)
LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF = 444, 446  # of all architectures
SCOPE_SIGNAL = 2
ENDING_S = 5.0  # a descendant that forks faster than it is ended is left to itself
NOT_STARTED = 127


def main() -> None:
    """Run the program to its end, or to this one's."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    signal.signal(signal.SIGTERM, _ended)
    become_reaper()
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    status = NOT_STARTED
    program = None
    try:
        if os.getppid() == parent:
            dies_too = lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # noqa: E731
            program = subprocess.Popen(command, start_new_session=True, preexec_fn=dies_too)
            status = program.wait()
    except OSError as exc:
        print(f"{command[0]}: {exc.strerror}", file=sys.stderr)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if program:
            program.kill()  # where it has not ended
        _end_descendants()
    end_like(status)


def supervised(*command: str) -> list[str]:
    """The command line of a program that ends with this process."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def prctl(option: int, value: int) -> None:
    """prctl(2) of this process; nothing elsewhere than on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def become_reaper() -> None:
    """Let what descendants leave behind become children of this process."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int) -> None:
    """Let Linux kill this process, and whatever it starts, when the thread of `parent` that forked it is gone."""
    become_reaper()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def keep_to_itself() -> None:
    """From now on this process, and what it starts, can signal and trace each other and nobody else.

    By Landlock, from Linux 6.12 on, where the kernel has it; elsewhere nothing changes. Programs that raise their
    rights (sudo) cannot do so any more.
    """
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    rules = (ctypes.c_uint64 * 3)(0, 0, SCOPE_SIGNAL)  # struct landlock_ruleset_attr
    ruleset = library.syscall(LANDLOCK_CREATE_RULESET, ctypes.byref(rules), ctypes.sizeof(rules), 0)
    if ruleset >= 0:
        library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        library.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0)
        os.close(ruleset)


def _ended(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)


def end_like(status: int) -> None:
    """End this process as one with this exit status, or below 0 this signal, ended."""
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _end_descendants() -> None:
    """End all, and the children that they leave to this process as they end."""
    deadline_s = time.monotonic() + ENDING_S
    while time.monotonic() < deadline_s:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for pid in descendants(os.getpid()):
            kill(pid)
        time.sleep(0.001)


def kill(pid: int) -> None:
    """End it, if it is there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return


def children() -> list[int]:
    """The children of this process, the ended ones that nobody waited for included."""
    own_pid = os.getpid()
    try:
        with open(f"/proc/self/task/{own_pid}/children", encoding="ascii") as listed:
            return [int(pid) for pid in listed.read().split()]
    except OSError:  # a kernel without it
        return _by_parent().get(own_pid, [])


def descendants(ancestor: int) -> Iterator[int]:
    """All processes below one."""
    parents, pids = _by_parent(), [ancestor]
    for pid in pids:
        pids += parents.get(pid, [])
    yield from pids[1:]


def tasks_of_machine() -> int:
    """How many threads there are; 0 where nobody counts them."""
    try:
        with open("/proc/loadavg", encoding="ascii") as file:
            return int(file.read().split()[3].partition("/")[2])
    except OSError:
        return 0


def _by_parent() -> dict[int, list[int]]:
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:
                    parent = int(stat.read().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):  # it ended meanwhile
                continue
            parents.setdefault(parent, []).append(int(name))
    return parents


if __name__ == "__main__":
    main()
