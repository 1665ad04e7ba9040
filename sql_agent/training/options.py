"""The command line of training -> TrainConfig."""

from __future__ import annotations

import argparse
import math
from typing import Any

from foundation.errors import UserError
from sql_agent.config import (
    TrainConfig,
    build_config,
    command_tree,
    commands,
    load_recipe,
    merge,
    resolve_system_prompt,
)
from sql_agent.serving import models

# Command line flags that only set a key of the configuration tree.
FLAGS = {
    "train_file": "data.train_file",
    "val_file": "data.val_file",
    "model": "model.path",
    "n_runners": "rollout.n_runners",
    "n_gpus": "trainer.n_gpus",
    "external_store_address": "store.external_address",
    "mongo_uri": "store.mongo_uri",
    "resume_checkpoint": "trainer.resume",
    "lora_rank": "model.lora_rank",
    "lora_adapter_path": "model.lora_adapter_path",
}


DEFAULT_LORA_RANK = 32


CI_STEPS = 20


def parser(description: str = "", *, prog: str = "train_sql_agent.py") -> argparse.ArgumentParser:
    """The command line. argparse, because --resume_checkpoint takes an optional value."""
    p = argparse.ArgumentParser(
        prog=prog,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    p.set_defaults(command=prog)
    data = p.add_argument_group("data and model")
    data.add_argument("--train-file", help="training questions, parquet or jsonl (default: data/train.parquet)")
    data.add_argument("--val-file", help="validation questions (default: data/val.parquet)")
    data.add_argument("--model", help="model folder or hub name (default: the recipe's; the tiny policy on a CPU)")
    data.add_argument(
        "--lora", action="store_true", help=f"train LoRA adapters (rank {DEFAULT_LORA_RANK} unless given)"
    )
    data.add_argument("--lora-rank", type=int, help="rank of the adapters; implies --lora")
    data.add_argument("--lora-adapter-path", help="adapter to continue from; implies --lora")
    run = p.add_argument_group("run")
    run.add_argument("--recipe", help="a folder of recipes/, or a TOML file (default: smoke_cpu or qwen3_0_6b)")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set any key, e.g. optim.lr=2e-6")
    run.add_argument("--ci", action="store_true", help=f"at most {CI_STEPS} steps")
    run.add_argument("--ci-fast", action="store_true", help="one small step, then validation (implies --ci)")
    run.add_argument(
        "--n-runners", type=int, help="runner processes, each with many rollouts in flight (default: the recipe's; 1)"
    )
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="check, compose and count everything, play an episode of each agent; train nothing",
    )
    run.add_argument("--n-gpus", type=int, help="GPUs to train on (default: 1)")
    run.add_argument("--trajectory-level", action="store_true", help="one training row per rollout instead of per turn")
    run.add_argument(
        "--resume_checkpoint",
        "--resume-checkpoint",
        nargs="?",
        const="latest",
        metavar="PATH|latest",
        help="continue from a global_step_N folder, a run folder, or the newest checkpoint",
    )
    store = p.add_argument_group("store and tracing")
    store.add_argument(
        "--external-store-address",
        help="http://host:port of `agl store` (default with AGL_MANAGED_STORE=0, which it needs: http://localhost:9999)",
    )
    store.add_argument("--mongo-uri", help="keep the managed store in this MongoDB instead of the run folder")
    store.add_argument("--llm-proxy", action="store_true", help="accepted; the LLM proxy is always used")
    store.add_argument("--weave", action="store_true", help="not available: the proxy's spans are what trains")
    store.add_argument("--debug", action="store_true", help="DEBUG log, and everything on the console")
    return p


def command_line_tree(args: argparse.Namespace) -> dict[str, Any]:
    """The configuration tree that the flags mean."""
    pairs = [(key, getattr(args, name)) for name, key in FLAGS.items() if getattr(args, name) is not None]
    if args.trajectory_level:
        pairs.append(("rollout.level", "trajectory"))
    if args.debug:
        pairs.append(("logging.debug", True))
    tree: dict[str, Any] = {}
    for key, value in pairs:
        node = tree
        *parents, leaf = key.split(".")
        for name in parents:
            node = node.setdefault(name, {})
        node[leaf] = value
    return tree


def resolve_config(args: argparse.Namespace) -> TrainConfig:
    """defaults < recipe < flags < --set, with the device decided. Raises UserError."""
    if args.weave:
        raise UserError(
            "--weave: Weave's tracer is not wired in, because token ids come from the LLM proxy's spans. Leave the "
            "flag out; for dashboards use --set 'logging.trackers=[\"wandb\"]'"
        )
    if args.llm_proxy and args.command != commands.GRPO:
        raise UserError(f"--llm-proxy: {args.command} has no LLM proxy; leave the flag out, or call {commands.GRPO}")
    flags = command_tree(args.command, args.set, recipe=args.recipe or "", flags=command_line_tree(args))
    named = load_recipe(args.recipe) if args.recipe else {}
    device = merge(named, flags).get("trainer", {}).get("device", "auto")
    if device == "auto":
        device = "cuda" if models.gpu_count() else "cpu"
    recipe = named or load_recipe("smoke_cpu" if device == "cpu" else "qwen3_0_6b")
    config = build_config(recipe, flags)
    if config.method != "grpo":
        raise UserError(
            f"method = {config.method}: this is the configuration of train_{config.method}.py; call that one"
        )
    extra: dict[str, Any] = {"trainer": {"device": device}} if config.trainer.device == "auto" else {}
    if (args.lora or args.lora_adapter_path) and not config.model.lora_rank:
        extra["model"] = {"lora_rank": DEFAULT_LORA_RANK}
    config = build_config(config.model_dump(), extra) if extra else config
    config = resolve_system_prompt(config, tiny=is_tiny(config))
    return shorten(config, ci=args.ci or args.ci_fast, fast=args.ci_fast)


def is_tiny(config: TrainConfig) -> bool:
    """True when the run trains the tiny policy: no GPU, and no model named."""
    return config.trainer.device == "cpu" and not config.model.path


def shorten(config: TrainConfig, *, ci: bool, fast: bool) -> TrainConfig:
    """--ci and --ci-fast: fewer steps; fast also takes few questions, and validates once, at the end."""
    if not ci:
        return config
    steps = min(config.trainer.max_steps or CI_STEPS, 1 if fast else CI_STEPS)
    tree: dict[str, Any] = {"trainer": {"max_steps": steps}}
    if fast:
        questions = math.lcm(min(config.optim.mini_batch_questions, 4), config.trainer.n_gpus)
        tree["trainer"]["validate_first"] = False
        tree["optim"] = {
            "questions_per_step": questions,
            "mini_batch_questions": questions,
            "micro_batch_rows": math.gcd(
                questions * config.rollout.group_size // config.trainer.n_gpus, config.optim.micro_batch_rows
            ),
        }
        tree["data"] = {"val_max_rows": min(config.data.val_max_rows, 8)}
    return build_config(config.model_dump(), tree)
