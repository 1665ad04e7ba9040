"""The folder of one run: config, metrics, rollouts, checkpoints, summary.

Lines are appended and flushed one by one, so a killed run keeps what it had; whole files are written to a temporary
name and renamed. Knows nothing of what a rollout record contains.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

METRICS = "metrics.jsonl"
ROLLOUTS = "rollouts.jsonl"
SUMMARY = "summary.json"
CONFIG = "config.json"
LOG = "train.log"
CHECKPOINTS = "checkpoints"


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


def jsonable(value: Any) -> Any:
    """Numbers as JSON has them: numpy and torch scalars become Python's, NaN and Inf become None."""
    if isinstance(value, dict):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(v) for v in value]
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def append_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Append one JSON object per line and flush. A lone surrogate, which UTF-8 lacks, becomes a question mark."""
    with path.open("a", encoding="utf-8", errors="replace") as file:
        file.writelines(json.dumps(jsonable(row), ensure_ascii=False) + "\n" for row in rows)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All complete lines of a JSONL file; [] when it does not exist. A torn last line is left out."""
    if not path.exists():
        return []
    data = path.read_bytes()
    # Bytes, and only \n: a torn line may end inside a character, and an answer may hold any other line separator.
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].split(b"\n") if line.strip()]


def write_json(path: Path, tree: dict[str, Any]) -> None:
    """Write a JSON file atomically."""
    temp = path.with_suffix(path.suffix + ".tmp")
    temp.write_text(json.dumps(jsonable(tree), ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    os.replace(temp, path)
