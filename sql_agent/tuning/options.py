"""The command lines of train_sft.py and train_dpo.py -> TrainConfig."""

from __future__ import annotations

import argparse
import functools
import json
from pathlib import Path
from typing import Any, Literal

from foundation import run_folder
from foundation.errors import UserError
from sql_agent.config import (
    TrainConfig,
    build_config,
    command_tree,
    load_recipe,
    merge,
    parse_assignment,
    resolve_system_prompt,
)
from sql_agent.evaluation.folder import PLAN
from sql_agent.evaluation.targets import settings_for
from sql_agent.serving import models
from sql_agent.training.options import DEFAULT_LORA_RANK, is_tiny
from sql_agent.tuning.sources import find_file

Method = Literal["sft", "dpo"]
# Flag -> the key that it sets; a key without a section is one of [sft] or [dpo].
FLAGS = {
    "model_path": "model.path",
    "lora_r": "model.lora_rank",
    "resume_checkpoint": "trainer.resume",
    "output_dir": "output_dir",
    "dataset": "dataset",
    "num_epochs": "epochs",
    "max_steps": "max_steps",
    "batch_size": "batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "learning_rate": "lr",
    "max_samples": "max_samples",
    "min_reward": "min_reward",
    "best_of": "best_of",
    "loss": "loss",
    "beta": "beta",
    "margin": "margin",
}
# What rollouts were played with, and are therefore learned with.
BROUGHT = ("agent", "agents", "database", "python")


def parser(method: Method, description: str = "") -> argparse.ArgumentParser:
    """The command line; flags with several words may be written with dashes too."""
    p = argparse.ArgumentParser(
        prog=f"train_{method}.py",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )

    def add(group: Any, name: str, **told: Any) -> None:
        group.add_argument(*dict.fromkeys([f"--{name}", f"--{name.replace('_', '-')}"]), dest=name, **told)

    data = p.add_argument_group("data and model")
    add(data, "model_path", help="model folder or hub name (default: the recipe's; the tiny policy on a CPU)")
    add(data, "dataset", help="file, run or evaluation folder, or hub name (default: data.train_file)")
    add(data, "max_samples", type=int, help="use the first so many (default: all)")
    add(data, "output_dir", help="new folder for the finished model, merged (default: none; export.py makes one)")
    if method == "sft":
        add(data, "min_reward", type=float, help="of rollouts, learn from none below this reward")
        add(data, "best_of", type=int, help="of each question's rollouts, learn from the best so many; 0: all")
    else:
        add(data, "margin", type=float, help="of rollouts, pair those whose rewards differ by at least this")
        add(data, "loss", help="dpo, ipo or kto")
        add(data, "beta", type=float, help="how strongly the policy is held to the start model")
    add(data, "use_lora", action="store_true", help=f"train LoRA adapters (rank {DEFAULT_LORA_RANK} unless given)")
    add(data, "lora_r", type=int, help="rank of the adapters; implies --use_lora")
    run = p.add_argument_group("run")
    add(run, "num_epochs", type=int, help="passes over the data")
    add(run, "max_steps", type=int, help="stop after this many optimizer steps")
    add(run, "batch_size", type=int, help="rows (pairs) per forward pass")
    add(run, "gradient_accumulation_steps", type=int, help="forward passes per optimizer step")
    add(run, "learning_rate", type=float, help="AdamW learning rate")
    run.add_argument("--recipe", help=f"a folder of recipes/, or a TOML file (default on a CPU: {method}_cpu)")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set any key")
    add(
        run,
        "resume_checkpoint",
        nargs="?",
        const="latest",
        metavar="PATH|latest",
        help="continue from a global_step_N folder, a run folder, or the newest checkpoint of this command",
    )
    run.add_argument("--debug", action="store_true", help="everything on the console")
    return p


def command_line_tree(method: Method, args: argparse.Namespace) -> dict[str, Any]:
    """The configuration tree that the flags mean."""
    tree: dict[str, Any] = {"method": method}
    for name, key in FLAGS.items():
        value = getattr(args, name, None)
        if value is not None:
            section, _, leaf = (key if "." in key else f"{method}.{key}").partition(".")
            tree = merge(tree, {section: {leaf: value}})
    return merge(tree, {"logging": {"debug": True}}) if args.debug else tree


def resolve_config(method: Method, args: argparse.Namespace) -> TrainConfig:
    """defaults < settings of the rollouts < recipe < flags < --set, with the device decided. Raises UserError."""
    flags = command_tree(
        f"train_{method}.py", args.set, recipe=args.recipe or "", flags=command_line_tree(method, args)
    )
    recipe = load_recipe(args.recipe) if args.recipe else {}
    device = merge(recipe, flags).get("trainer", {}).get("device", "auto")
    if device == "auto":
        device = "cuda" if models.gpu_count() else "cpu"
    if not recipe and device == "cpu" and not flags.get("model", {}).get("path"):
        recipe = load_recipe(f"{method}_cpu")
    if recipe.get("method", method) != method:
        raise UserError(f"--recipe {args.recipe}: its method is {recipe['method']}, and this is train_{method}.py")
    config = build_config(recipe, flags)
    config = build_config(brought(config, method), recipe, flags, {"trainer": {"device": device}})
    if args.use_lora and not config.model.lora_rank:
        config = build_config(config.model_dump(), {"model": {"lora_rank": DEFAULT_LORA_RANK}})
    return resolve_system_prompt(config, tiny=is_tiny(config))


def brought(config: TrainConfig, method: Method) -> dict[str, Any]:
    """The sections that the rollouts of `dataset` were played with; {} for other data."""
    file = find_file(getattr(config, method).dataset, config)
    if file is None:
        return {}
    run, plan = _json(file.parent / run_folder.CONFIG), _json(file.parent / PLAN)
    if file.name == run_folder.ROLLOUTS and run:
        return {section: run[section] for section in BROUGHT if section in run}
    return _played(plan) if plan else {}


def _played(plan: dict[str, Any]) -> dict[str, Any]:
    """Agent and database of an evaluation, of which both models must have had the same prompt."""
    asked, targets = plan.get("asked", {}), plan.get("facts", {}).get("targets", {})
    texts = [text for text in (asked.get("before", ""), asked.get("after")) if text is not None]
    base = load_recipe(asked["recipe"]) if asked.get("recipe") else settings_for(texts[:1])
    tree = functools.reduce(merge, [parse_assignment(text) for text in asked.get("set", [])], base)
    prompts = {target.get("system_prompt") for target in targets.values()}
    if len(prompts) > 1:
        raise UserError(f"the models of this evaluation had different system prompts ({prompts}); evaluate one alone")
    told = {section: tree[section] for section in BROUGHT if section in tree}
    return merge(told, {"agent": {"system_prompt": prompts.pop()}} if prompts else {})


def _json(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return tree if isinstance(tree, dict) else {}
