"""Training, evaluation and export as calls: each is the job of the command of that name, in a process of its own."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, get_args

from foundation.errors import RunError, UserError, did_you_mean
from foundation.weights import Precision
from sql_agent.api.calls import Done, run_job, settings, with_keys
from sql_agent.api.given import tool_sources
from sql_agent.api.rewards import RewardFunction, term_of
from sql_agent.api.runs import Evaluation, Run
from sql_agent.config import HOME, TrainConfig, build_config, command_tree, commands, data_path, load_recipe, nested
from sql_agent.data.bundled import SPLITS as BUNDLED
from sql_agent.data.given import plain
from sql_agent.data.named import Source, question_file, tuning_source
from sql_agent.training import options

Model = Run | str | Path


class TrainingFailed(RunError):
    """The run did not reach its end; `run` is what it left."""

    def __init__(self, message: str, run: Run | None) -> None:
        super().__init__(message)
        self.run = run


@with_keys
def train(
    recipe: str | Path = "",
    *,
    model: Model = "",
    dataset: Source = "",
    max_samples: int | None = None,
    reward: RewardFunction | str = "",
    tools: Any = (),
    ci: bool = False,
    ci_fast: bool = False,
    quiet: bool = False,
    **overrides: Any,
) -> Run:
    """Train with GRPO: `agentgrpo train --recipe RECIPE`, with a store of its own.

    `dataset` are training questions (a name, a file, rows or a frame: see load_dataset), `reward` is a reward function
    in place of the recipe's reward, `tools` are the agent's: one or several functions, classes of environments, names.
    Overrides are configuration keys (see `keys`): optim__lr=1e-5, optim={"lr": 1e-5} or **{"optim.lr": 1e-5}. Raises
    UserError for wrong input, and TrainingFailed, whose `run` is what there is.
    """
    tree = _model_key(model)
    if _is_named(dataset):
        tree["data.train_file"] = str(question_file(dataset, max_samples=max_samples))
    elif max_samples is not None:
        tree["data.train_file"] = str(_own_file(str(recipe), overrides, max_samples))
    if reward:
        overrides = {"reward.default_scorer": "judge", **overrides, "reward.terms": [term_of(reward)]}
    if sources := tool_sources(tools):
        overrides = {**overrides, "agent.tools": sources}
    tree |= settings(overrides, arguments=train.__annotations__)
    keys = command_tree(commands.GRPO, [], recipe=str(recipe), flags=nested(tree))
    config = options.shorten(options.configured(keys, recipe=str(recipe)), ci=ci or ci_fast, fast=ci_fast)
    return _run_of(run_job("sql_agent.commands.train:run", config=config, quiet=quiet))


def for_word_problems(dataset: Source, max_samples: int | None = None, *, tiny: bool = False) -> dict[str, Any]:
    """Arguments of `train` for a set of word problems: calculator, Python and their prompt, on any device, with nothing
    held out. Raises UserError."""
    file = str(question_file(dataset, max_samples=max_samples))
    quiet = {"trainer.validate_first": False, "trainer.validate_every": -1, "data.val_file": file}
    return {"recipe": "math_cpu" if tiny else "math_gsm8k", "trainer.device": "auto", **quiet}


def _is_named(dataset: Source) -> bool:
    """Whether a call names a data set; rows and frames may be empty."""
    return not isinstance(dataset, str) or dataset != ""


def _own_file(recipe: str, overrides: dict[str, Any], max_samples: int) -> Path:
    """The first questions of the recipe's training file."""
    named = build_config(load_recipe(recipe)).data if recipe else TrainConfig().data
    return question_file(overrides.get("data.train_file") or data_path(named.train_file), max_samples=max_samples)


def _model_key(model: Model) -> dict[str, Any]:
    """The key that names a model, if one is given: a run's newest checkpoint is exported once."""
    if not isinstance(model, Run):
        return {"model.path": str(model)} if model else {}
    from sql_agent.evaluation.targets import exported

    if not model.checkpoints:
        raise UserError(f"{model.folder}: has no checkpoint; set trainer.save_every")
    return {"model.path": str(exported(model.checkpoints[-1], tell=lambda text, detail="": None))}


def _run_of(done: Done) -> Run:
    """The run that a job made. Raises TrainingFailed."""
    run = Run(done.path) if done.path else None
    if done.status or run is None:
        error = run.summary.get("error", "") if run and run.status else ""
        raise TrainingFailed(error or done.last_words or f"exit status {done.status}", run)
    return run


@with_keys
def evaluate(
    before: Model = "",
    after: Model = "",
    *,
    splits: Sequence[Source] | Source = (),
    limit: int = 120,
    samples: int = 4,
    recipe: str = "",
    concurrency: int = 32,
    out: str | Path = "",
    quiet: bool = False,
    **overrides: Any,
) -> Evaluation:
    """Measure a model, or two against each other: `agentgrpo evaluate`. A model is a Run, a folder, a hub name, or
    NAME@http://host/v1; "" the tiny policy. `splits`: one or several of the bundled ones, question files, registered
    sets, rows and frames.

    Trials that a fault ended are in no mean; `Evaluation.rewards` counts them. Raises UserError, and RunError where
    not all trials were played.
    """
    keys = settings(overrides, arguments=evaluate.__annotations__)
    for name, value, least in (("limit", limit, 0), ("samples", samples, 1), ("concurrency", concurrency, 1)):
        if not isinstance(value, Integral) or value < least:
            raise UserError(f"{name} = {value!r:.80}: must be at least {least}, a whole number")
    folder = Path(out) if out else HOME / "runs" / "evaluations" / datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    evaluation = Evaluation(folder.expanduser().absolute())
    done = run_job(
        "sql_agent.commands.evaluate:run",
        quiet=quiet,
        flags={
            "before": _target(before),
            "after": _target(after),
            "split": _splits(splits),
            "limit": int(limit),
            "samples": int(samples),
            "vote": 0,
            "recipe": recipe,
            "set": [f"{key}={json.dumps(value)}" for key, value in keys.items()],
        },
        folder=evaluation.folder,
        resumed=False,
        concurrency=concurrency,
        inspect_log=False,
    )
    if done.status and (not (evaluation.folder / "results.json").is_file() or evaluation.results.partial):
        raise RunError(done.last_words)
    return evaluation


def _target(model: Model) -> str:
    return str(model.folder if isinstance(model, Run) else model or "")


def _splits(splits: Sequence[Source] | Source) -> list[str]:
    are_several = isinstance(splits, list | tuple) and not (splits and isinstance(splits[0], Mapping))
    sources = splits if are_several else [splits]
    return [name if isinstance(name, str) and name in BUNDLED else str(question_file(name)) for name in sources]


def export(source: Run | str | Path, out: str | Path, *, dtype: str = "auto", quiet: bool = False) -> Path:
    """Turn a run's newest checkpoint, or a checkpoint, into a model folder: `agentgrpo export`.

    Raises UserError, RunError.
    """
    if dtype not in (allowed := get_args(Precision)):
        raise UserError(f"dtype = {dtype!r}: must be {', '.join(allowed)}{did_you_mean(dtype, allowed)}")
    target = Path(out).expanduser().absolute()
    checkpoint = Path(_target(source))
    done = run_job("sql_agent.commands.export:run", source=checkpoint, out=target, dtype=dtype, quiet=quiet)
    if done.status:
        raise RunError(done.last_words)
    return target


@with_keys
def tune(
    method: Literal["sft", "dpo"],
    recipe: str | Path = "",
    *,
    model: Model = "",
    dataset: Source = "",
    max_samples: int | None = None,
    output_dir: str | Path = "",
    use_lora: bool = False,
    quiet: bool = False,
    **overrides: Any,
) -> Run:
    """Learn from conversations or preferences: `agentgrpo sft`, `agentgrpo dpo`, by the names of the same calls below.

    `dataset` are conversations, questions or pairs (see load_dataset), `output_dir` a folder for the exported model.
    Raises UserError for wrong input, and TrainingFailed, whose `run` is what there is.
    """
    from sql_agent.tuning.options import configured

    source = tuning_source(dataset) if _is_named(dataset) else ""
    flags = {"dataset": source, "max_samples": max_samples, "output_dir": output_dir}
    tree = {"method": method, **_model_key(model)}
    tree |= {f"{method}.{name}": plain(value, what=name) for name, value in flags.items() if value}
    tree |= settings(overrides, arguments=tune.__annotations__)
    keys = command_tree(f"agentgrpo {method}", [], recipe=str(recipe), flags=nested(tree))
    config = configured(method, keys, recipe=str(recipe), lora=use_lora)
    run = _run_of(run_job("sql_agent.tuning.job:run_tuning", config=config, quiet=quiet))
    if out := config.tune.output_dir:
        try:
            export(run, out, quiet=quiet)
        except RunError as exc:
            raise TrainingFailed(str(exc), run) from exc
    return run


sft = functools.partial(tune, "sft")
sft.__doc__ = "Supervised fine-tuning: `agentgrpo sft`. `dataset`: conversations or questions (see load_dataset)."
dpo = functools.partial(tune, "dpo")
dpo.__doc__ = "Direct preference optimisation: `agentgrpo dpo`. `dataset`: pairs (see load_dataset)."
