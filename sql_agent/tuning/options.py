"""The command lines of `agentgrpo sft` and `agentgrpo dpo` -> TrainConfig."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

from foundation import run_folder
from foundation.command import LATEST
from foundation.errors import UserError
from foundation.files import read_object
from sql_agent.config import (
    TrainConfig,
    build_config,
    command_tree,
    load_recipe,
    merge,
    nested,
    parse_assignment,
    resolve_system_prompt,
)
from sql_agent.evaluation.folder import PLAN
from sql_agent.evaluation.targets import settings_for
from sql_agent.training.options import RunFlags, device_of, ranked
from sql_agent.training.stored import stored_folder
from sql_agent.tuning.sources import find_file

Method = Literal["sft", "dpo"]
# Flag -> the key that it sets, where that is not the one of [sft] or [dpo] with its name.
KEYS = {
    "model": "model.path",
    "lora_rank": "model.lora_rank",
    "resume": "trainer.resume",
    "debug": "logging.debug",
    "out": "output_dir",
    "data": "dataset",
}
NO_KEYS = ("recipe", "set_", "lora")
# What rollouts were played with, and are therefore learned with.
BROUGHT = ("agent", "agents", "database", "python")


@dataclass(frozen=True)
class Flags(RunFlags):
    data: Annotated[
        str | None, Option(help="a file, a run, an evaluation, or a hub name (default: data.train_file)")
    ] = None
    max_samples: Annotated[int | None, Option(help="use the first so many (default, and 0: all)")] = None
    out: Annotated[str | None, Option(help="new folder for the finished model, merged (default: none)")] = None
    epochs: Annotated[int | None, Option(help="passes over the data")] = None
    max_steps: Annotated[int | None, Option(help="stop after this many optimizer steps; 0: after the epochs")] = None
    batch_size: Annotated[int | None, Option(help="rows (pairs) per forward pass")] = None
    gradient_accumulation_steps: Annotated[int | None, Option(help="forward passes per optimizer step")] = None
    lr: Annotated[float | None, Option(help="AdamW learning rate")] = None
    resume: Annotated[
        str | None,
        Option(
            metavar=LATEST,
            help="continue from a global_step_N folder, a run folder, or (alone) the newest checkpoint of this command",
        ),
    ] = None


@dataclass(frozen=True)
class SftFlags(Flags):
    min_reward: Annotated[float | None, Option(help="of rollouts, learn from none below this reward")] = None
    best_of: Annotated[int | None, Option(help="of each question's rollouts, the best so many; 0: all")] = None


@dataclass(frozen=True)
class DpoFlags(Flags):
    margin: Annotated[float | None, Option(help="of rollouts, pair those whose rewards differ by at least this")] = None
    loss: Annotated[str | None, Option(help="dpo, ipo or kto")] = None
    beta: Annotated[float | None, Option(help="how strongly the policy is held to the start model")] = None


def command_line_tree(method: Method, flags: Flags) -> dict[str, Any]:
    """The configuration tree that the flags mean."""
    keys = {key_of(method, name): value for name, value in vars(flags).items() if name not in NO_KEYS}
    keys |= {"method": method, "logging.debug": flags.debug or None}
    return nested({key: value for key, value in keys.items() if value is not None})


def key_of(method: Method, flag: str) -> str:
    key = KEYS.get(flag, flag)
    return key if "." in key else f"{method}.{key}"


def resolve_config(method: Method, flags: Flags) -> TrainConfig:
    """defaults < settings of the rollouts < recipe < flags < --set, with the device decided. Raises UserError."""
    tree = command_line_tree(method, flags)
    keys = command_tree(f"agentgrpo {method}", flags.set_ or [], recipe=flags.recipe, flags=tree)
    return configured(method, keys, recipe=flags.recipe, lora=flags.lora)


def configured(method: Method, tree: dict[str, Any], *, recipe: str, lora: bool) -> TrainConfig:
    """The same from the tree of a command line or of a call (see command_tree)."""
    named = load_recipe(recipe) if recipe else {}
    device = device_of(merge(named, tree))
    if not named and device == "cpu" and not tree.get("model", {}).get("path"):
        named = load_recipe(f"{method}_cpu")
    if named.get("method", method) != method:
        raise UserError(f"--recipe {recipe}: its method is {named['method']}, and this is `agentgrpo {method}`")
    config = build_config(named, tree)
    data, runs = config.data, config.trainer.runs
    stored = stored_folder(data, runs) / run_folder.ROLLOUTS if data.from_store else None
    played = brought(stored or find_file(config.tune.dataset, data))
    config = build_config(played, named, tree, {"trainer": {"device": device}})
    return resolve_system_prompt(ranked(config, tree, lora=lora), tiny=config.is_tiny)


def brought(file: Path | None) -> dict[str, Any]:
    """The sections that the rollouts of a data set's file were played with; {} for other data."""
    if file is None:
        return {}
    run, plan = read_object(file.parent / run_folder.CONFIG), read_object(file.parent / PLAN)
    if file.name == run_folder.ROLLOUTS and run:
        return {section: run[section] for section in BROUGHT if section in run}
    return _played(plan) if plan else {}


def _played(plan: dict[str, Any]) -> dict[str, Any]:
    """Agent and database of an evaluation, of which both models must have had the same prompt."""
    evaluated, targets = plan.get("asked", {}), plan.get("facts", {}).get("targets", {})
    texts = [text for text in (evaluated.get("before", ""), evaluated.get("after")) if text is not None]
    base = load_recipe(evaluated["recipe"]) if evaluated.get("recipe") else settings_for(texts[:1])
    tree = functools.reduce(merge, [parse_assignment(text) for text in evaluated.get("set", [])], base)
    prompts = {target.get("system_prompt") for target in targets.values()}
    if len(prompts) > 1:
        raise UserError(f"the models of this evaluation had different system prompts ({prompts}); evaluate one alone")
    sections = {section: tree[section] for section in BROUGHT if section in tree}
    return merge(sections, {"agent": {"system_prompt": prompts.pop()}} if prompts else {})
