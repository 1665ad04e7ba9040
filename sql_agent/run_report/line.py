"""The report of a run that has just ended, made in a process of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from foundation import supervise
from sql_agent.config import COMMAND

TIME_LIMIT_S = 180.0


def report_line(folder: Path) -> str:
    """Make the report in a process of its own, and say in one line where it is, or why there is none.

    For the end of a run: whatever happens to the report, the run has what it has.
    """
    command = supervise.supervised(*COMMAND, "report", str(folder))
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIME_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"warning: no report of this run ({exc})"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return lines[-1] if done.returncode == 0 and lines else f"warning: no report of this run ({' '.join(lines[-1:])})"
