"""Which runs a run goes on from, and what each of them changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from foundation import run_folder
from foundation.run_folder import step_number
from sql_agent.config import flatten

Tree = dict[str, Any]


def ancestors(config: Tree) -> list[Tree]:
    """The checkpoints that a run of this configuration goes back to, the nearest first: {run, step, changed}.

    `changed` are the settings that differ from that run's: {key: [there, here]}. Ends where a run's folder is gone.
    """
    older_runs, seen = list[Tree](), set[Path]()
    while resume := config["trainer"]["resume"]:
        step = Path(resume)
        file = step.parent.parent / run_folder.CONFIG
        if file in seen or not file.is_file():
            break
        seen.add(file)
        older = json.loads(file.read_text(encoding="utf-8"))
        before, now = flatten(older), flatten(config)
        changed = {key: [before.get(key), value] for key, value in now.items() if before.get(key) != value}
        changed.pop("trainer.resume", None)
        older_runs.append({"run": file.parent.name, "step": step_number(step), "changed": changed})
        config = older
    return older_runs


def ancestors_text(ancestors: list[Tree]) -> str:
    """For people: the runs and steps, and what the nearest changed."""
    runs = ", before that ".join(f"{ancestor['run']}@{ancestor['step']}" for ancestor in ancestors)
    changed = [f"{key} {old} -> {new}" for key, (old, new) in ancestors[0]["changed"].items()] if ancestors else []
    return f"{runs}; changed: {', '.join(changed)}" if changed else runs
