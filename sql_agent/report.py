"""The report of a run: one page, report.html, that needs nothing else and loads nothing; its curves as PNG beside it.

    python sql_agent/report.py runs/RUN_FOLDER

Guarantees: works on a run that failed, was killed or lost files, and says what is missing; a run of any size gives a
page below 3 MB. The parts stand in sql_agent/run_report/.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sql_agent.errors import UserError
from sql_agent.run_report.folder import read_run

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
notes = Console(stderr=True, highlight=False, soft_wrap=True)
REPORT, PLOTS = "report.html", "plots"
TIME_LIMIT_S = 180.0


def write_report(folder: Path, *, evaluation: Path | None = None) -> Path:
    """Write report.html and plots/*.png into the run folder, and return the page. Raises UserError, OSError."""
    from sql_agent.run_report import page as pages  # matplotlib and the rest take two seconds

    run = read_run(folder, evaluation=evaluation)
    page = pages.build(run)
    pngs = pages.write_pngs(page, folder / PLOTS)
    text = pages.render(page, pngs=[f"{PLOTS}/{png.name}" for png in pngs])
    target = folder / REPORT
    temp = target.with_suffix(".tmp")
    temp.write_text(text, encoding="utf-8", errors="replace")
    os.replace(temp, target)
    return target


def report_line(folder: Path) -> str:
    """Make the report in a process of its own, and say in one line where it is, or why there is none.

    For the end of a run: whatever happens to the report, the run has what it has.
    """
    command = [sys.executable, str(Path(__file__).resolve()), str(folder)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=TIME_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"warning: no report of this run ({exc})"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return lines[-1] if done.returncode == 0 and lines else f"warning: no report of this run ({' '.join(lines[-1:])})"


@app.command()
def main(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN_FOLDER", help="the folder that a run printed in its last line")
    ],
    evaluation: Annotated[
        Path | None, typer.Option(help="folder of evaluate.py (default: evaluation/ in the run folder)")
    ] = None,
) -> None:
    """Write the report of a run: report.html in its folder, and the curves in plots/.

    The last line is `report: FILE`. Exit status: 0 done, 2 wrong input.
    """
    try:
        target = write_report(folder, evaluation=evaluation)
    except (UserError, OSError) as exc:
        notes.print(f"error: {exc}", markup=False)
        raise typer.Exit(2) from None
    print(f"report: {target}")


if __name__ == "__main__":
    app()
