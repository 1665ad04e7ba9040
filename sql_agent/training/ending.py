"""How a run ends, whatever trained it: what broke, told for people, and summary.json."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Any

from foundation import run_folder
from foundation.files import write_json
from sql_agent.training.summary import build_summary

logger = logging.getLogger(__name__)
DISK_FULL = "the disk of {run_dir} is full. Free space there, then go on with --resume"


def what_broke(exc: Exception, run_dir: Path) -> str:
    """The failure for people. The one boundary between a whole stack and a person: the traceback goes to the log."""
    logger.exception("training failed", exc_info=exc)
    text = f"{type(exc).__name__}: {str(exc)[:2000]}\nThe log has the details: {run_dir / run_folder.LOG}"
    full = os.strerror(errno.ENOSPC) in str(exc)
    return f"{text}\n{DISK_FULL.format(run_dir=run_dir)}" if full else text


def write_summary(
    run_dir: Path, *, error: str, total_s: float, peak_memory_gib: float, facts: dict[str, Any]
) -> dict[str, Any]:
    """Write and return the summary; `facts` has `total_steps`. A summary that cannot be written is a failed run."""
    facts = {"status": "", "error": error, **facts}
    summary = build_summary(run_dir, total_s=total_s, peak_memory_gib=peak_memory_gib, facts=facts)
    done = summary["last_step"] == summary["total_steps"] or summary["best"].get("ended", False)
    summary["status"] = "failed" if error else ("finished" if done else "interrupted")
    try:
        write_json(run_dir / run_folder.SUMMARY, summary)
    except OSError as exc:
        why = f"summary.json could not be written: {exc}"
        summary |= {"status": "failed", "error": "\n".join(filter(None, [error, why]))}
    return summary
