"""A function in a process of its own: `python -P -m foundation.entry FOLDER`.

FOLDER/job holds, pickled, the function's name ("module:function") and its arguments; what it made, a path, is written
to FOLDER/result. Errors end it as they end a command (see foundation/command.py). The folder is the caller's own: what
is unpickled there may do anything.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from pathlib import Path

import typer

from foundation.command import prepare, shown_errors
from foundation.console import log_warnings

JOB, RESULT = "job", "result"


def main() -> None:
    """Do what FOLDER says, and exit with the status that the function gives."""
    prepare()
    log_warnings()
    folder = Path(sys.argv[1])
    name, arguments = pickle.loads((folder / JOB).read_bytes())
    module, _, function = name.partition(":")
    try:
        with shown_errors():
            status, result = getattr(importlib.import_module(module), function)(**arguments)
            (folder / RESULT).write_text(str(result), encoding="utf-8")
    except typer.Exit as end:
        status = end.exit_code
    sys.exit(status)


if __name__ == "__main__":
    main()
