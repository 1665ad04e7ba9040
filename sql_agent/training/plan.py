"""A run that was looked at, whatever trains it: how it is written down, carried out and summed up.

What breaks while it is carried out ends it with a summary that says so; the run folder keeps what the run had.
"""

from __future__ import annotations

import errno
import logging
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agl_plugin.run.progress import Progress
from foundation import console, run_folder
from foundation.environment import end_trackers, prepare_trackers
from foundation.errors import RunError, UserError
from foundation.files import write_json
from foundation.processes import ProcessTree
from foundation.versions import versions
from sql_agent.config import TrainConfig
from sql_agent.training.summary import build_summary

logger = logging.getLogger(__name__)
DISK_FULL = "the disk of {run_dir} is full. Free space there, then go on with --resume"
EXIT = {"finished": 0, "failed": 1, "interrupted": 130}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`model` has the weights that the run starts from; `steps` are all of the run's."""

    config: TrainConfig
    run_dir: Path
    model: Path
    steps: int

    def facts(self) -> dict[str, Any]:
        config = self.config
        return {
            "recipe": config.recipe,
            "total_steps": self.steps,
            "device": config.trainer.device,
            "versions": versions(),
            "model": {"path": str(self.model), "tiny_policy": config.is_tiny, "lora_rank": config.model.lora_rank},
        }

    def write_down(self) -> None:
        """The configuration in the run folder, and where trackers write."""
        prepare_trackers(self.run_dir)
        write_json(self.run_dir / run_folder.CONFIG, self.config.model_dump())


def carry_out(plan: Plan, fit: Callable[[], None], *, begins: str) -> dict[str, Any]:
    """Train by `fit`, telling progress alone, and leave no process behind; write and return the summary.

    `begins` is said while nothing is trained yet.
    """
    started = time.monotonic()
    with (
        console.quiet(plan.run_dir / run_folder.LOG, enabled=not plan.config.logging.debug) as terminal,
        ProcessTree() as tree,
    ):
        error = ""
        try:
            with Progress(terminal, plan.run_dir, what=begins):
                fit()
        except (RunError, UserError) as exc:
            error = str(exc)
        except KeyboardInterrupt:
            pass
        except Exception as exc:
            error = _what_broke(exc, plan.run_dir)
        end_trackers()
    return _summary(plan, error=error, total_s=time.monotonic() - started, peak_memory_gib=tree.peak_gib)


def _what_broke(exc: Exception, run_dir: Path) -> str:
    """The failure for people. The one boundary between a whole stack and a person: the traceback goes to the log."""
    logger.exception("training failed", exc_info=exc)
    text = f"{type(exc).__name__}: {str(exc)[:2000]}\nThe log has the details: {run_dir / run_folder.LOG}"
    full = os.strerror(errno.ENOSPC) in str(exc)
    return f"{text}\n{DISK_FULL.format(run_dir=run_dir)}" if full else text


def _summary(plan: Plan, *, error: str, total_s: float, peak_memory_gib: float) -> dict[str, Any]:
    """Write and return the summary. One that cannot be written is a failed run."""
    facts = {"status": "", "error": error, **plan.facts()}
    summary = build_summary(plan.run_dir, total_s=total_s, peak_memory_gib=peak_memory_gib, facts=facts)
    done = summary["last_step"] == summary["total_steps"] or summary["best"].get("ended", False)
    summary["status"] = "failed" if error else ("finished" if done else "interrupted")
    summary["goes_on"] = "" if done else _goes_on(plan)
    try:
        write_json(plan.run_dir / run_folder.SUMMARY, summary)
    except OSError as exc:
        why = f"summary.json could not be written: {exc}"
        summary |= {"status": "failed", "error": "\n".join(filter(None, [error, why]))}
    return summary


def _goes_on(plan: Plan) -> str:
    """How a run that was not done is taken up: from its own newest checkpoint, not from that of another run."""
    if (plan.run_dir / run_folder.CHECKPOINTS / run_folder.NOTE).is_file():
        return f"--resume {shlex.quote(str(plan.run_dir))}"
    older = plan.config.trainer.resume
    return f"it saved no checkpoint: start it again{older and f' with --resume {shlex.quote(older)}'}"
