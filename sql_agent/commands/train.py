"""`agentgrpo train`: GRPO, with verl's back end or in one process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

from rich.console import Console

from foundation import console
from foundation.command import with_flags
from foundation.console import log_warnings
from foundation.environment import prepare_environment
from foundation.preloaded import Preloaded
from sql_agent.config import TrainConfig
from sql_agent.run_report.file import report_line
from sql_agent.training.options import Backend, Flags, resolve_config


@with_flags(Flags)
def train(flags: Flags) -> int:
    """Train an agent with GRPO. Without a GPU and without --model the tiny policy learns, on the CPU, by the same code.

    \b
    agentgrpo train --ci-fast                                one step: does everything work here?
    agentgrpo train                                          the default recipe, with a store of its own
    agentgrpo train --recipe qwen2_5_7b --model MODEL --n-gpus 2
    agentgrpo train --recipe local_cpu --backend local       one process: no Ray, no store, no vLLM
    agentgrpo train --resume                                 goes on from the newest checkpoint
    agentgrpo train --store http://localhost:9999            against `agentgrpo store` or `agl store` (docs/17-store.md)

    Settings are the defaults, then the recipe's, then this command line's; docs/10-configuration.md lists the keys that
    --set takes. The last line is `run: FOLDER`.
    """
    log_warnings(debug=flags.debug)
    return run(resolve_config(flags), local=flags.backend == Backend.local, dry=flags.dry_run)[0]


def run(config: TrainConfig, *, local: bool = False, dry: bool = False) -> tuple[int, Path | None]:
    """The job itself, with verl or in one process. Returns the exit status and the run folder. Raises UserError."""
    terminal = console.own_terminal()
    if local:
        from sql_agent.local.job import dry_run_local, run_local

        status, run_dir = (dry_run_local(config, terminal), None) if dry else run_local(config, terminal)
    else:
        role = os.environ.get("AGL_CURRENT_ROLE", "both")
        own_ray = config.trainer.device == "cpu" and not os.environ.get("RAY_ADDRESS")
        forks = own_ray and config.rollout.proxy == "gateway" and role != "runner" and not dry
        with _python(lora=config.model.lora_rank > 0) if forks else nullcontext() as python:
            status, run_dir = _checked(config, terminal, dry=dry, role=role, python=python)
    if run_dir:
        terminal.print(f"{report_line(run_dir)}\nrun: {run_dir}", markup=False)
    return status, run_dir


@contextmanager
def _python(*, lora: bool) -> Iterator[Path]:
    """What runs Ray's workers on a CPU: one process imports torch, verl and vLLM for all of them."""
    prepare_environment(cpu=True, offline=True, lora=lora)
    # Ray's library takes its job and its parent as it is loaded.
    ray_of_this_process = {"RAY_JOB_ID": "01000000", "RAY_RAYLET_PID": str(os.getpid())}
    with closing(Preloaded("agl_plugin.run.loaded", **ray_of_this_process)) as python:
        yield python.executable


def _checked(
    config: TrainConfig, terminal: Console, *, dry: bool, role: str, python: Path | None
) -> tuple[int, Path | None]:
    """What may be imported meanwhile is imported here."""
    from sql_agent.data.bundled import ensure_data
    from sql_agent.training import preflight
    from sql_agent.training.dry_run import dry_run
    from sql_agent.training.external_store import check_mongo, store_address, wait_for_store
    from sql_agent.training.job import run_runners, run_training

    config = config.but(store={"external_address": store_address(config.store)})
    preflight.check_role(role)
    preflight.check_store_port(config.store, role=role)
    if role != "runner":
        preflight.check_installed(("torch", "verl", "vllm"), extra="gpu] or agentgrpo[cpu")
    if config.store.mongo_uri and role != "runner":
        check_mongo(config.store.mongo_uri, is_asked=not dry)
    ensure_data(config.data, config)
    if dry:
        return dry_run(config, terminal), None
    if role != "runner":
        preflight.check_devices(config.trainer, config.rollout)
    preflight.check_agent(config)
    if config.store.external_address:
        wait_for_store(config.store.external_address, say=terminal.print)
    if role == "runner":
        return run_runners(config), None
    return run_training(config, role=role, terminal=terminal, python=python)
