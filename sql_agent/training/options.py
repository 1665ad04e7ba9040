"""The command line of `agentgrpo train` -> TrainConfig."""

from __future__ import annotations

import logging
import math
import shlex
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from typer import Option

from foundation import gpus
from foundation.command import LATEST
from foundation.errors import UserError
from sql_agent.config import (
    DatabaseConfig,
    TrainConfig,
    build_config,
    command_tree,
    commands,
    load_recipe,
    merge,
    nested,
    resolve_system_prompt,
)

logger = logging.getLogger(__name__)
DEFAULT_LORA_RANK = 32
CI_STEPS = 20
# Flags that only set a key of the configuration tree.
KEYS = {
    "data": "data.train_file",
    "val_data": "data.val_file",
    "model": "model.path",
    "n_runners": "rollout.n_runners",
    "n_gpus": "trainer.n_gpus",
    "store": "store.external_address",
    "mongo_uri": "store.mongo_uri",
    "resume": "trainer.resume",
    "lora_rank": "model.lora_rank",
    "lora_adapter_path": "model.lora_adapter_path",
}


class Backend(StrEnum):
    verl = "verl"
    local = "local"


@dataclass(frozen=True)
class RunFlags:
    """What the commands that train share. What is None says nothing."""

    recipe: Annotated[str, Option(help="a folder of recipes/, or a TOML file (default: by command and device)")] = ""
    set_: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="set any key, e.g. optim.lr=2e-6; may be repeated")
    ] = None
    model: Annotated[str | None, Option(help="folder or hub name (default: the recipe's, or the tiny policy)")] = None
    lora: Annotated[bool, Option("--lora", help="train LoRA adapters (rank 32 unless given)")] = False
    lora_rank: Annotated[int | None, Option(help="rank of the adapters; implies --lora")] = None
    debug: Annotated[bool, Option("--debug", help="DEBUG log, and everything on the console")] = False


@dataclass(frozen=True)
class Flags(RunFlags):
    backend: Annotated[Backend, Option(help="verl: Ray, vLLM and a store; local: one process")] = Backend.verl
    data: Annotated[
        str | None, Option(help="training questions: parquet, jsonl, csv (default: data/train.parquet)")
    ] = None
    val_data: Annotated[str | None, Option(help="validation questions (default: data/val.parquet)")] = None
    lora_adapter_path: Annotated[str | None, Option(help="adapter to continue from; implies --lora")] = None
    ci: Annotated[bool, Option("--ci", help=f"at most {CI_STEPS} steps")] = False
    ci_fast: Annotated[bool, Option("--ci-fast", help="one small step, then validation (implies --ci)")] = False
    dry_run: Annotated[bool, Option("--dry-run", help="check, count and rehearse everything; train nothing")] = False
    resume: Annotated[
        str | None,
        Option(
            metavar=LATEST,
            help="continue from RUN, RUN@best, RUN@STEP, a global_step_N folder, or (alone) the newest checkpoint",
        ),
    ] = None
    fork: Annotated[str | None, Option(metavar="RUN@STEP", help="--resume, with other settings; RUN@best")] = None
    n_gpus: Annotated[int | None, Option(help="GPUs to train on (default: 1)")] = None
    n_runners: Annotated[int | None, Option(help="runner processes, many rollouts each (default: 1)")] = None
    trajectory_level: Annotated[bool, Option("--trajectory-level", help="one row per rollout, not per turn")] = False
    store: Annotated[
        str | None,
        Option(
            metavar="ADDRESS",
            help="http://host:port of a store that runs already (default: one of its own; with AGL_MANAGED_STORE=0 "
            "http://localhost:9999)",
        ),
    ] = None
    mongo_uri: Annotated[str | None, Option(help="MongoDB of its own store, or '$NAME' of a variable with it")] = None
    weave: Annotated[bool, Option("--weave", hidden=True)] = False
    llm_proxy: Annotated[bool, Option("--llm-proxy", hidden=True)] = False  # it is always there


def command_line_tree(flags: Flags) -> dict[str, Any]:
    pairs = [(key, getattr(flags, name)) for name, key in KEYS.items() if getattr(flags, name) is not None]
    if flags.trajectory_level:
        pairs.append(("rollout.level", "trajectory"))
    if flags.debug:
        pairs.append(("logging.debug", True))
    if flags.fork is not None:
        pairs += [("trainer.resume", flags.fork), ("trainer.resume_changed", True)]
    return nested(dict(pairs))


def resolve_config(flags: Flags) -> TrainConfig:
    """defaults < recipe < flags < --set, with the device decided. Raises UserError."""
    if flags.weave:
        raise UserError(
            "--weave: Weave's tracer is not wired in, because token ids come from the LLM proxy's spans. Leave the "
            "flag out; for dashboards use --set 'logging.trackers=[\"wandb\"]'"
        )
    if flags.fork is not None and flags.resume is not None:
        raise UserError(f"--fork {flags.fork} and --resume {flags.resume}: both name where the run goes on; give one")
    is_local = flags.backend == Backend.local
    command = commands.LOCAL if is_local else commands.GRPO
    if flags.llm_proxy and is_local:
        raise UserError(f"--llm-proxy: {command} has no LLM proxy; leave the flag out, or call {commands.GRPO}")
    keys_given = command_tree(command, flags.set_ or [], recipe=flags.recipe, flags=command_line_tree(flags))
    config = configured(keys_given, recipe=flags.recipe, lora=flags.lora or bool(flags.lora_adapter_path))
    return shorten(config, ci=flags.ci or flags.ci_fast, fast=flags.ci_fast)


def device_of(tree: dict[str, Any]) -> str:
    """`trainer.device`, where "auto" is decided by what the driver shows."""
    device = tree.get("trainer", {}).get("device", "auto")
    if device != "auto":
        return device
    return "cuda" if gpus.gpu_count() else "cpu"


def configured(tree: dict[str, Any], *, recipe: str, lora: bool = False) -> TrainConfig:
    """defaults < recipe < what is told (see command_tree), with device and prompt decided. Raises UserError."""
    named = load_recipe(recipe) if recipe else {}
    device = device_of(merge(named, tree))
    base = named or load_recipe("smoke_cpu" if device == "cpu" else "qwen3_0_6b")
    config = build_config(base, tree, {"trainer": {"device": device}})
    if config.method != "grpo":
        raise UserError(
            f"method = {config.method}: this is the configuration of `agentgrpo {config.method}`; call that one"
        )
    config = ranked(config, tree, lora=lora)
    config = resolve_system_prompt(config, tiny=config.is_tiny)
    if config.is_tiny and not config.model.tiny:
        database, tools = config.database, [tool for tool in config.agent.tools if tool != "sql"]
        is_other = database.tables != DatabaseConfig().tables
        unknown = (database.tables or [database.url or database.folder] if is_other else []) + tools
        mine = f"`agentgrpo mine {shlex.quote(database.path)}` makes one that does, or "
        remedy = "" if database.url or tools else mine
        if unknown:
            logger.warning(
                "the tiny policy knows the bundled tables and the SQL tool alone and learns nothing of %s; %sname a "
                "--model",
                ", ".join(unknown),
                remedy,
            )
    return config


def ranked(config: TrainConfig, tree: dict[str, Any], *, lora: bool) -> TrainConfig:
    """With `lora` the adapters have a rank where the recipe has none. Raises UserError where the command line has 0."""
    if not lora or config.model.lora_rank:
        return config
    if "lora_rank" in tree.get("model", {}):
        raise UserError("--lora trains adapters, and a rank of 0 all weights: leave one of them out, or raise the rank")
    return config.but(model={"lora_rank": DEFAULT_LORA_RANK})


def shorten(config: TrainConfig, *, ci: bool, fast: bool) -> TrainConfig:
    """--ci and --ci-fast: fewer steps; fast also takes few questions, and validates once, at the end."""
    if not ci:
        return config
    steps = min(config.trainer.max_steps or CI_STEPS, 1 if fast else CI_STEPS)
    tree: dict[str, Any] = {"trainer": {"max_steps": steps}}
    if fast:
        questions = math.lcm(min(config.optim.mini_batch_questions, 4), config.trainer.n_ranks)
        tree["trainer"]["validate_first"] = False
        tree["optim"] = {
            "questions_per_step": questions,
            "mini_batch_questions": questions,
            "micro_batch_rows": math.gcd(
                questions * config.rollout.group_size // config.trainer.n_ranks, config.optim.micro_batch_rows
            ),
        }
        tree["data"] = {"val_max_rows": min(config.data.val_max_rows, 8)}
    return config.but(**tree)
