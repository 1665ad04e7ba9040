"""`--dry-run`: what can be known of a run without a GPU, the model's files and a store; nothing is trained.

Guarantees: the checks are those of a real run, in its order, the judge's included (one call each, if it is an LLM), and
one episode of each agent is played against a scripted model (rehearsal.py).
Not covered: GPUs, the store, and whether a model that is not on this machine can be had; figures of memory are
arithmetic over parameters and settings, and were not measured on GPUs.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console

from sql_agent.agent.grading import scoring_of
from sql_agent.config import TrainConfig, TrainerConfig, agents_of, flatten
from sql_agent.scoring.check import check_judge, offline_kinds
from sql_agent.scoring.registry import ScoringContext
from sql_agent.serving.models import check_model_folder, gpu_count
from sql_agent.training import preflight
from sql_agent.training.memory import GB, local_model, memory, model_name, parameters
from sql_agent.training.probe import findings, probed
from sql_agent.training.questions import load_data, total_steps
from sql_agent.training.rehearsal import rehearse
from sql_agent.training.verl_config import verl_overrides
from sql_agent.training.verl_keys import check_verl, composed_base


def dry_run(config: TrainConfig, terminal: Console, *, verl: bool = True) -> int:
    """Check, compose (unless `verl` is False) and count; print all of it. Raises UserError as a run would."""
    if verl:
        check_verl(config)
    preflight.check_agent(config)
    with closing(scoring_of(config)) as scoring:
        train, val = load_data(config, scoring)
        probed_questions = val if config.data.from_store else train
        steps = total_steps(config, len(train))
        check(config, scoring, steps=steps)
        played = [*rehearse(config, [*probed_questions, *val])]
        graded = offline_kinds(probed_questions, scoring)
        lines = [*arithmetic(config, scoring, n_train=len(train), n_val=len(val), steps=steps), *played]
        lines += [f"the offline judge grades {graded}"] if graded else []
        lines += findings(probed(probed_questions, scoring))
    whole, base = config.logging.debug, flatten(TrainConfig().model_dump(mode="json"))
    show(terminal, "configuration", flatten(config.model_dump(mode="json")), base=base, whole=whole)
    if verl:
        path = model_name(config.model, tiny=config.is_tiny, seed=config.trainer.seed)
        overrides = verl_overrides(config, model_path=path, run_dir=Path("RUN_FOLDER"), total_steps=steps)
        show(terminal, "verl's configuration", flatten(overrides), base=flatten(composed_base()), whole=whole)
    terminal.print("\n".join(["", *lines]), markup=False)
    terminal.print("dry run: the checks passed; nothing was trained", markup=False)
    return 0


def check(config: TrainConfig, scoring: ScoringContext, *, steps: int) -> None:
    """The checks of a run that need neither GPU nor store nor model."""
    preflight.resumed(config, steps=steps)
    preflight.check_adapter(config.model)
    preflight.check_loss(config.optim.loss)
    preflight.check_trackers(config.logging.trackers)
    if folder := local_model(config.model.path):
        check_model_folder(folder, allow_remote_code=config.model.allow_remote_code)
        preflight.check_disk(config.trainer, folder, lora=config.model.lora_rank > 0)
    if gpu_count() >= config.trainer.n_gpus or config.trainer.device == "cpu":
        preflight.check_devices(config.trainer, config.rollout)
    preflight.check_parallel(config.trainer, config.rollout, folder)
    check_judge(scoring)


def show(terminal: Console, title: str, flat: dict[str, Any], *, base: dict[str, Any], whole: bool) -> None:
    """A tree over its defaults `base` as lines `key = value`; unless `whole`, those that are not the default."""
    shown = base | flat if whole else {key: value for key, value in flat.items() if base.get(key, ...) != value}
    lines = (f"  {key} = {json.dumps(value, ensure_ascii=False, default=str)}" for key, value in sorted(shown.items()))
    note = "" if whole else ", where it is not the default (--debug: all)"
    terminal.print("\n".join(["", f"{title}{note}", *lines]), markup=False)


def arithmetic(config: TrainConfig, scoring: ScoringContext, *, n_train: int, n_val: int, steps: int) -> Iterator[str]:
    """Lines for people: rows and steps, calls, memory, disk."""
    rollout, optim, trainer = config.rollout, config.optim, config.trainer
    rollouts = optim.questions_per_step * rollout.group_size
    updates = math.ceil(optim.questions_per_step / optim.mini_batch_questions)
    validations, stored = n_validations(trainer, steps), bool(config.data.from_store)
    n_played = validations * n_val + (0 if stored else steps * rollouts)
    name = model_name(config.model, tiny=config.is_tiny, seed=trainer.seed)
    where = "cpu" if trainer.device == "cpu" else f"{trainer.device}, {trainer.n_gpus} GPU(s)"
    yield f"recipe {config.recipe} on {where}; model {name}"
    if trainer.device == "cuda" and gpu_count() < trainer.n_gpus:
        yield f"GPUs: not looked at (the driver here shows {gpu_count()})"
    yield f"questions: {n_train} to train, {n_val} to validate"
    yield f"steps: {steps}, each {optim.questions_per_step} questions x {rollout.group_size} = {rollouts} rollouts in"
    yield f"  {updates} optimizer step(s) of {rollouts // updates} rollouts"
    size = f"{optim.micro_batch_tokens} tokens" if optim.micro_batch_tokens else f"{optim.micro_batch_rows} rows"
    yield f"  {size} per forward pass and GPU"
    kind = "stored" if stored else "in training"
    yield f"rollouts: {steps * rollouts} {kind}, {validations * n_val} in {validations} validation(s)"
    turns = max(settings.agent.max_turns for settings in agents_of(config).values())
    yield f"model calls: at most {n_played * turns} ({turns} turns each)"
    calls = judge_calls(
        config.reward.judge.mode if scoring.llm else "",
        groups=0 if stored else steps * optim.questions_per_step,
        size=rollout.group_size,
        n_val=validations * n_val,
    )
    yield f"judge: {scoring.judge_name}; calls: {calls}"
    yield from memory(config.model, optim, rollout, trainer, tiny=config.is_tiny)
    n, _ = parameters(config.model.path, tiny=config.is_tiny)
    yield disk(trainer, n, lora=config.model.lora_rank > 0)


def n_validations(trainer: TrainerConfig, steps: int) -> int:
    """Validations of a run: before the first step, every so many steps, and after the last."""
    every = trainer.validate_every
    later = math.ceil(steps / every) if every > 0 else 0
    return later + int(trainer.validate_first)


def judge_calls(mode: str, *, groups: int, size: int, n_val: int) -> str:
    """The most calls of an LLM judge, tries after a failure not counted; `mode` is "" without one."""
    if not mode:
        return "none"
    calls = {"pointwise": size, "pairwise": size * (size - 1), "groupwise": 1}[mode] * groups
    return f"at most {calls + n_val}, {calls} of them in training (equal answers and failed tries not counted)"


def disk(trainer: TrainerConfig, n: float, *, lora: bool) -> str:
    """What the checkpoints of a model of `n` parameters need, beside what is free."""
    if trainer.save_every <= 0:
        return "disk: no checkpoints (trainer.save_every)"
    need = preflight.checkpoint_bytes(trainer, 2 * n, lora=lora)
    runs_dir = trainer.runs
    there = next(folder for folder in (runs_dir, *runs_dir.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    short = " (too little: on this disk the run would not start)" if free < need else ""
    return (
        f"disk: about {need / GB:.3g} GB for {trainer.keep_checkpoints} checkpoints, the best and one in the making; "
        f"{free / GB:.3g} GB free in {runs_dir}{short}"
    )
