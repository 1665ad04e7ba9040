"""Checkpoints of runs: which ones are complete, and this project's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foundation import run_folder
from foundation.errors import UserError
from foundation.files import read_object, whole_object
from foundation.run_folder import BEST, CHECKPOINTS, NOTE, STEP, step_folder, step_number
from foundation.weights import damage_of
from sql_agent.config import TrainerConfig, resolve_path
from sql_agent.serving.checkpoint_model import BROKEN, shards_of

MODEL_FILES = (".safetensors", ".pt", ".json")  # what makes another model when it changes


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Bytes and ns of the last change of the files that make a model, by their paths in its folder."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in MODEL_FILES
    }


def find_checkpoint(trainer: TrainerConfig, *, method: str) -> Path:
    """The complete global_step_N folder that `trainer.resume` means, none of its files cut off. Raises UserError.

    Checkpoints are loaded with pickle, so only folders of this project's runs count; and a checkpoint that was cut off
    while being saved does not (NOTE names the last complete one). All are of runs with this `method`.
    """
    resume = trainer.resume
    option = f"{'--fork' if trainer.resume_changed else '--resume'} {resume}"
    if resume == "latest":
        checkpoint = own_checkpoint(trainer.runs, option=option, method=method)
    else:
        checkpoint = own_checkpoint(checkpoint_path(resume, trainer.runs, option=option), option=option)
    if (other := method_of(checkpoint)) != method:
        raise UserError(f"{option}: {checkpoint} is of a run with method = {other}, and this one's is {method}")
    check_whole(checkpoint)
    return checkpoint


def check_whole(step: Path) -> None:
    """Weights and optimizer of all ranks are there to their ends. Raises UserError."""
    for path in sorted({*shards_of(step / "actor"), *step.rglob("*")}):
        if path.suffix in MODEL_FILES and (why := damage_of(path)):
            raise UserError(BROKEN.format(path=path, why=why))


def checkpoint_path(text: str, *bases: Path, option: str) -> Path:
    """What a user's text names, as `resolve_path` finds it, and RUN@best and RUN@N: a checkpoint of a run.

    Raises UserError naming `option` for the best of a run that has none, and for RUN@ANYTHING.
    """
    path, (name, _, which) = resolve_path(text, *bases), text.rpartition("@")
    if path.exists() or not name:
        return path
    checkpoints = resolve_path(name, *bases) / CHECKPOINTS
    if which.isdecimal():
        return step_folder(checkpoints, int(which))
    if which != "best":
        if checkpoints.is_dir():
            raise UserError(f"{option}: @{which} is no checkpoint of {name}; say @best, @STEP, or the run alone")
        return path
    best = read_object(checkpoints / BEST).get("folder")
    if not isinstance(best, str):
        raise UserError(
            f"{option}: {checkpoints.parent} has no best checkpoint: none was saved after a validation "
            "(trainer.validate_every, trainer.save_every; GRPO alone). Name the run for its newest, or RUN@N"
        )
    # It may be of an older run that this one goes on from; a run that was moved has it at its new place.
    return Path(best) if Path(best).exists() else checkpoints / Path(best).name


def run_config(step: Path) -> dict[str, Any]:
    """The configuration of the run that a checkpoint of this project is of. Raises UserError."""
    return whole_object(step.parent.parent / run_folder.CONFIG)


def method_of(step: Path) -> str:
    """What made a checkpoint of this project: grpo, sft or dpo."""
    return str(run_config(step).get("method", "grpo"))


def own_checkpoint(path: Path, *, option: str, method: str = "") -> Path:
    """The newest complete checkpoint at or below `path`, of a run of this project. Raises UserError naming `option`.

    `method` leaves out those of other methods.
    """
    is_step = path.name.startswith(STEP)
    complete = [step for step in ([path] if is_step else path.glob(f"**/{STEP}*")) if _is_complete(step)]
    if not complete:
        where = f"{path}{'' if path.exists() else ', which does not exist'}"
        others = [step for step in path.parent.glob(f"{STEP}*") if is_step and _is_complete(step)]
        numbers = ", ".join(map(str, sorted(map(step_number, others))))
        remedy = f"Complete are: {numbers}" if others else "Name a run that saved one (trainer.save_every)"
        raise UserError(f"{option}: no complete global_step_N folder below {where}. {remedy}")
    own = [step for step in complete if (step.parent.parent / run_folder.CONFIG).is_file()]
    if not own:
        raise UserError(
            f"{option}: {complete[-1].parent.parent} is no run folder of this project (config.json "
            "is missing). Checkpoints are loaded with pickle, so only own runs are resumed"
        )
    candidates = [step for step in own if not method or method_of(step) == method]
    if not candidates:
        raise UserError(f"{option}: no run below {path} with method = {method} has a checkpoint")
    return max(candidates, key=lambda step: ((step.parent / NOTE).stat().st_mtime, step_number(step))).resolve()


def _is_complete(step: Path) -> bool:
    """True for a saved, numbered step that is not newer than the last one that was finished."""
    note = step.parent / NOTE
    last = note.read_bytes().strip() if note.is_file() else b""
    return (step / "actor").is_dir() and 0 <= step_number(step) <= (int(last) if last.isdigit() else -1)
