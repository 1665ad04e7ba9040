"""`agentgrpo report`: a run as one page, report.html, that loads nothing else; its curves as PNG beside it.

Guarantees: works on a run that failed, was killed or lost files, and says what is missing; a run of any size gives a
page below 3 MB. The parts stand in sql_agent/run_report/.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from foundation.errors import UserError
from foundation.http_gate import Traffic, checked_token
from foundation.http_server import run
from foundation.net import bind, http_address, is_own_host
from sql_agent.run_report.file import write_report

TOKEN_NAME = "REPORT_TOKEN"
PORT, DRAIN_S = 8090, 5


def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN_FOLDER", help="folder that a run printed in its last line")],
    evaluation: Annotated[
        Path | None, typer.Option(help="folder of `agentgrpo evaluate` (default: evaluation/ in the run folder)")
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="serve the page, and follow the run while it goes")] = False,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help=f"of the live page ({PORT})")] = None,
    host: Annotated[str | None, typer.Option(help=f"its interface; beyond 127.0.0.1 {TOKEN_NAME} is needed")] = None,
) -> None:
    """Write the report of a run: report.html in its folder, and the curves in plots/.

    \b
    agentgrpo report runs/RUN              also of a run that was killed
    agentgrpo report runs/RUN --live       in a browser, while it trains: curves, groups, rollouts, search

    The last line is `report: FILE`. A browser asks for a name and a password where REPORT_TOKEN is set: any name, and
    the token.
    """
    if live and evaluation:
        raise UserError("--evaluation: a live page shows evaluation/ of its run; leave it out, or leave out --live")
    if not live and (flags := [name for name, value in {"--port": port, "--host": host}.items() if value is not None]):
        raise UserError(f"{', '.join(flags)}: only for a live page; add --live, or leave it out")
    if live:
        return _serve(folder, host or "127.0.0.1", port or PORT)
    target = write_report(folder, evaluation=evaluation, tell=print)
    print(f"report: {target}")


def _serve(folder: Path, host: str, port: int) -> None:
    from sql_agent.run_report.live import LiveView

    token = checked_token(os.environ.get(TOKEN_NAME, ""), host=host, variable=TOKEN_NAME)
    view = LiveView(folder)
    listener = bind(host, port)
    traffic = Traffic()
    listener.listen()
    address, need = http_address(host, port), "needed" if token else "not needed"
    print(f"live report of {folder} at {address}/, token {need}; Ctrl-C ends it", flush=True)
    run(view.app(traffic, token=token, local=is_own_host(host)), traffic, listener, drain_s=DRAIN_S)
