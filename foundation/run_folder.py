"""The folder of one run: its name and the names of what it holds."""

from __future__ import annotations

import time
from pathlib import Path

METRICS = "metrics.jsonl"
ROLLOUTS = "rollouts.jsonl"
SUMMARY = "summary.json"
CONFIG = "config.json"
JUDGE_PROMPT = "judge_prompt.txt"
LOG = "train.log"
AUDIT = "audit.db"
AUDIT_SEAL = "audit.sha256"
CHECKPOINTS = "checkpoints"
# Below it: the best one, and the number of the last that was written whole.
BEST = "best.json"
NOTE = "latest_checkpointed_iteration.txt"
STEP = "global_step_"
STORE = "rollouts.db"


def new_run_folder(runs_dir: Path, *, name: str) -> Path:
    """Create and return `runs_dir/<time>-<name>[-k]`, a folder that did not exist before."""
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"
    for k in range(1000):
        path = runs_dir / (stem if k == 0 else f"{stem}-{k}")
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            continue
    raise FileExistsError(f"{runs_dir / stem}: 1000 runs of this second exist already")


def step_folder(checkpoints: Path, step: int) -> Path:
    """The folder of the checkpoint of one step."""
    return checkpoints / f"{STEP}{step}"


def step_number(folder: Path) -> int:
    """The step of a checkpoint's folder; -1 for another folder."""
    text = folder.name.removeprefix(STEP)
    return int(text) if text.isdecimal() and text != folder.name else -1


def steps_of(checkpoints: Path) -> list[Path]:
    """The numbered folders of a run's checkpoints, in order."""
    folders = [path for path in checkpoints.glob(f"{STEP}*") if step_number(path) >= 0]
    return sorted(folders, key=step_number)
