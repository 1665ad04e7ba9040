"""The report of a run as a file: written here, or at a run's end in a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from foundation import supervise
from foundation.files import write_text
from sql_agent.config import COMMAND
from sql_agent.run_report.folder import read_run
from sql_agent.run_report.headline import headlines

REPORT, PLOTS = "report.html", "plots"
TIME_LIMIT_S = 180.0


def write_report(
    folder: Path, *, evaluation: Path | None = None, tell: Callable[[str], object] = lambda _: None
) -> Path:
    """Write report.html and plots/*.png into the run folder, and return the page; `tell` gets a line for each
    comparison at its top. Raises UserError, OSError."""
    from sql_agent.run_report import page as pages  # matplotlib and the rest take two seconds

    run = read_run(folder, evaluation=evaluation)
    page = pages.build(run)
    pngs = pages.write_pngs(page, folder / PLOTS)
    text = pages.render(page, pngs=[f"{PLOTS}/{png.name}" for png in pngs])
    write_text(folder / REPORT, text)
    for headline in headlines(run):
        tell(str(headline))
    return folder / REPORT


def report_line(folder: Path) -> str:
    """Make the report in a process of its own, and say what it found and where it is, or in one line why there is none.

    For the end of a run: whatever happens to the report, the run has what it has.
    """
    command = supervise.supervised(*COMMAND, "report", str(folder))
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIME_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"warning: no report of this run ({exc})"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    if done.returncode == 0 and lines:
        return "\n".join(lines)
    return f"warning: no report of this run ({' '.join(lines[-1:])})"
