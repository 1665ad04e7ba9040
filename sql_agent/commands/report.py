"""The report of a run: one page, report.html, that needs nothing else and loads nothing; its curves as PNG beside it.

    agentgrpo report runs/RUN_FOLDER

Guarantees: works on a run that failed, was killed or lost files, and says what is missing; a run of any size gives a
page below 3 MB. The parts stand in sql_agent/run_report/.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foundation.files import write_text
from sql_agent.run_report.folder import read_run

REPORT, PLOTS = "report.html", "plots"


def write_report(folder: Path, *, evaluation: Path | None = None) -> Path:
    """Write report.html and plots/*.png into the run folder, and return the page. Raises UserError, OSError."""
    from sql_agent.run_report import page as pages  # matplotlib and the rest take two seconds

    run = read_run(folder, evaluation=evaluation)
    page = pages.build(run)
    pngs = pages.write_pngs(page, folder / PLOTS)
    text = pages.render(page, pngs=[f"{PLOTS}/{png.name}" for png in pngs])
    write_text(folder / REPORT, text)
    return folder / REPORT


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN_FOLDER", help="the folder that a run printed in its last line")
    ],
    evaluation: Annotated[
        Path | None, typer.Option(help="folder of `agentgrpo evaluate` (default: evaluation/ in the run folder)")
    ] = None,
) -> None:
    """Write the report of a run: report.html in its folder, and the curves in plots/.

    \b
    agentgrpo report runs/RUN

    The last line is `report: FILE`.
    """
    target = write_report(folder, evaluation=evaluation)
    print(f"report: {target}")
