"""Checkpoints of runs: which ones are complete, and this project's own."""

from __future__ import annotations

from pathlib import Path

from foundation.errors import UserError
from sql_agent.config import TrainConfig, resolve_path

MODEL_FILES = (".safetensors", ".pt", ".json")  # what makes another model when it changes


def find_checkpoint(config: TrainConfig, runs_dir: Path) -> Path:
    """The complete global_step_N folder that `trainer.resume` means. Raises UserError.

    Checkpoints are loaded with pickle, so only folders of this project's runs count; and a checkpoint that was cut off
    while being saved does not (verl notes the last complete one in latest_checkpointed_iteration.txt).
    """
    resume = config.trainer.resume
    path = runs_dir if resume == "latest" else resolve_path(resume, runs_dir)
    return own_checkpoint(path, asked=f"--resume_checkpoint {resume}")


def own_checkpoint(path: Path, *, asked: str) -> Path:
    """The newest complete checkpoint at or below `path`, of a run of this project. Raises UserError naming `asked`."""
    steps = [path] if path.name.startswith("global_step_") else list(path.glob("**/global_step_*"))
    complete = [step for step in steps if (step / "actor").is_dir() and _is_complete(step)]
    if not complete:
        where = f"{path}{'' if path.exists() else ', which does not exist'}"
        raise UserError(
            f"{asked}: no complete global_step_N folder below {where}. Name a run that saved one (trainer.save_every)"
        )
    own = [step for step in complete if (step.parent.parent / "config.json").is_file()]
    if not own:
        raise UserError(
            f"{asked}: {complete[-1].parent.parent} is no run folder of this project (config.json "
            "is missing). Checkpoints are loaded with pickle, so only own runs are resumed"
        )
    return max(own, key=lambda step: (_note(step).stat().st_mtime, _step_number(step))).resolve()


def _note(step: Path) -> Path:
    return step.parent / "latest_checkpointed_iteration.txt"


def _step_number(step: Path) -> int:
    text = step.name.rpartition("_")[2]
    return int(text) if text.isdigit() else -1


def _is_complete(step: Path) -> bool:
    """True for a numbered step that is not newer than the last one that verl finished."""
    last = _note(step).read_text(encoding="utf-8").strip() if _note(step).is_file() else ""
    return 0 <= _step_number(step) <= (int(last) if last.isdigit() else -1)
