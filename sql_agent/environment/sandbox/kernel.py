"""The kernel's part of the sandbox: a process that can compute, and write to descriptor 1, and nothing else.

Guarantees, once `confine` returned, whatever the code does, in Python or in C: no file, no network, no other process,
no signal, no new program and no executable memory; the process ends with SIGPROF after its processor time, and memory
beyond its limit is refused. Nothing of it can be undone. Linux on x86_64 and aarch64; elsewhere Unconfined. It needs no
privilege and no namespaces, so it holds in containers too. Standard library only.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import signal
import struct
from typing import NamedTuple

from sql_agent.environment.child_side import bound

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38  # prctl(2)
SECCOMP_MODE_FILTER = 2
ALLOW, EPERM, KILL = 0x7FFF0000, 0x00050001, 0x80000000  # what a filter answers
LOAD, IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # instructions of a filter
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16  # offsets in struct seccomp_data
X32_BIT = 0x40000000  # calls of another ABI under the same architecture
PROT_EXEC, MAP_ANONYMOUS = 4, 0x20
OUTPUT = 1
MOST_DESCRIPTORS = 4096


class Unconfined(Exception):
    """This machine cannot confine a process. The text says why."""


class Calls(NamedTuple):
    """The numbers of system calls on one kind of machine; `harmless` are allowed with any argument."""

    architecture: int
    write: int
    mmap: int
    harmless: tuple[int, ...]


# harmless: munmap, mremap, brk, madvise, futex, rt_sigreturn, exit, exit_group
CALLS = {
    "x86_64": Calls(0xC000003E, 1, 9, (11, 25, 12, 28, 202, 15, 60, 231)),
    "aarch64": Calls(0xC00000B7, 64, 222, (215, 216, 214, 233, 98, 139, 93, 94)),
}


Step = tuple[int, int, int, int]


def filter_steps(calls: Calls) -> list[Step]:
    """The filter, (code, skip if true, skip if false, operand) each. What it does not name is refused with EPERM."""

    def low(argument: int) -> Step:
        return LOAD, 0, 0, ARGUMENTS_AT + 8 * argument

    allow, refuse = (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, EPERM)
    steps: list[Step] = [
        *((LOAD, 0, 0, ARCHITECTURE_AT), (IF_EQUAL, 1, 0, calls.architecture), (RETURN, 0, 0, KILL)),
        *((LOAD, 0, 0, NUMBER_AT), (IF_AT_LEAST, 0, 1, X32_BIT), (RETURN, 0, 0, KILL)),
        *((IF_EQUAL, 0, 4, calls.write), low(0), (IF_EQUAL, 0, 1, OUTPUT), allow, refuse),
        *((IF_EQUAL, 0, 6, calls.mmap), low(2), (IF_ANY_BIT, 3, 0, PROT_EXEC)),
        *(low(3), (IF_ANY_BIT, 0, 1, MAP_ANONYMOUS), allow, refuse),
    ]
    for number in calls.harmless:
        steps += [(IF_EQUAL, 0, 1, number), allow]
    return [*steps, refuse]


def confine(*, cpu_s: float, memory_bytes: int) -> None:
    """Give up everything but computing and writing to descriptor 1. Raises Unconfined."""
    calls = CALLS.get(platform.machine())
    if platform.system() != "Linux" or calls is None:
        raise Unconfined(f"{platform.system()} on {platform.machine()}: it needs Linux on {' or '.join(CALLS)}")
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    _prctl(prctl, PR_SET_PDEATHSIG, signal.SIGKILL)
    os.closerange(OUTPUT + 1, MOST_DESCRIPTORS)
    os.close(0)
    os.environ.clear()
    bound(memory_bytes, CPU=math.ceil(cpu_s) + 1, NOFILE=0)
    # The timer's signal ends a process by default, also inside one long C call.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    _prctl(prctl, PR_SET_NO_NEW_PRIVS, 1)
    steps = filter_steps(calls)
    instructions = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))  # sock_filter
    program = struct.pack("HP", len(steps), ctypes.addressof(instructions))  # sock_fprog
    _prctl(prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program)


def _prctl(prctl: ctypes._NamedFuncPointer, option: int, *values: object) -> None:
    if prctl(option, *values, *[0] * (4 - len(values))):
        raise Unconfined(f"prctl({option}): {os.strerror(ctypes.get_errno())}; its kernel offers no filter of calls")
