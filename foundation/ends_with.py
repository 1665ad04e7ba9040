"""Ends processes when another is gone, however that went: `python -I -S ends_with.py PARENT PID...`.

For what does not look after itself: Ray's agents report for a minute that their server was killed. Guarantees: a number
that another process got meanwhile is not taken for the first one's. Linux alone; standard library only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable


def ends_with_this(pids: Iterable[int]) -> None:
    """Start the process that waits, for this one's end."""
    if sys.platform == "linux":
        command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), *map(str, pids)]
        subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)


def main() -> None:
    """Wait for the parent, which may be gone already."""
    others: list[int] = []
    for pid in sys.argv[2:]:
        with contextlib.suppress(ProcessLookupError):
            others.append(os.pidfd_open(int(pid)))
    with contextlib.suppress(ProcessLookupError):
        select.select([os.pidfd_open(int(sys.argv[1]))], [], [])
    for other in others:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(other, signal.SIGKILL)


if __name__ == "__main__":
    main()
