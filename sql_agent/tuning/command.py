"""What the commands on TRL do with a command line."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from foundation import console
from foundation.errors import UserError
from sql_agent.config import ROOT
from sql_agent.run_report.line import report_line
from sql_agent.training.job import EXIT
from sql_agent.tuning.job import run_tuning, section_of
from sql_agent.tuning.options import Method, parser, resolve_config


def run_command(method: Method, description: str, argv: list[str] | None = None) -> int:
    """train_sft.py and train_dpo.py, with the exit status of `run_to_end`."""
    args = parser(method, description).parse_args(argv)

    def work(terminal: Console) -> tuple[int, Path]:
        config = resolve_config(method, args)
        status, run_dir = run_tuning(config, terminal)
        if status == 0 and (out := section_of(config).output_dir):
            status = _export(run_dir, Path(out).expanduser().absolute())
        return status, run_dir

    return run_to_end(work, debug=args.debug)


def run_to_end(work: Callable[[Console], tuple[int, Path | None]], *, debug: bool) -> int:
    """Exit status of a run in this process: 0 done, 1 the run failed, 2 wrong input, 130 interrupted.

    `work` returns it and the run folder, None where nothing was run.
    """
    # SIGTERM ends a run in order, as Ctrl-C does. A shell starts background jobs with SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING)
    terminal = console.own_terminal()
    try:
        status, run_dir = work(terminal)
    except UserError as exc:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {exc}", markup=False)
        return 2
    except KeyboardInterrupt:
        return EXIT["interrupted"]
    if run_dir:
        terminal.print(f"{report_line(run_dir)}\nrun: {run_dir}", markup=False)
    return status


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _export(run_dir: Path, out: Path) -> int:
    """The finished model as a folder of its own, by export.py."""
    command = [sys.executable, str(ROOT / "sql_agent" / "export.py"), str(run_dir), str(out)]
    return int(subprocess.run(command, check=False).returncode != 0)
