"""A run that was looked at, whatever trains it: how it is written down, carried out and summed up.

What breaks while it is carried out ends it with a summary that says so; the run folder keeps what the run had.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from foundation import console, run_folder
from foundation.environment import end_trackers, prepare_trackers
from foundation.errors import RunError, UserError
from foundation.files import write_json
from foundation.processes import ProcessTree
from foundation.versions import versions
from sql_agent.config import TrainConfig
from sql_agent.training.ending import what_broke, write_summary

EXIT = {"finished": 0, "failed": 1, "interrupted": 130}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`model` has the weights that the run starts from; `steps` are all of the run's."""

    config: TrainConfig
    run_dir: Path
    model: Path
    steps: int

    def facts(self) -> dict[str, Any]:
        """What the summary says of it, whatever happens."""
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


def carry_out(plan: Plan, fit: Callable[[Console], None]) -> dict[str, Any]:
    """Train by `fit` on a console that is quiet else, and leave no process behind; write and return the summary."""
    started = time.monotonic()
    with (
        console.quiet(plan.run_dir / run_folder.LOG, enabled=not plan.config.logging.debug) as terminal,
        ProcessTree() as tree,
    ):
        error = _error_of(fit, plan.run_dir, terminal)
        end_trackers()
    total_s = time.monotonic() - started
    peak_gib, facts = tree.peak_gib, plan.facts()
    return write_summary(plan.run_dir, error=error, total_s=total_s, peak_memory_gib=peak_gib, facts=facts)


def _error_of(fit: Callable[[Console], None], run_dir: Path, terminal: Console) -> str:
    """What went wrong, for people, or ""."""
    try:
        fit(terminal)
    except (RunError, UserError) as exc:
        return str(exc)
    except KeyboardInterrupt:
        return ""
    except Exception as exc:
        return what_broke(exc, run_dir)
    return ""
