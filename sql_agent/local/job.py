"""The story of a run in one process: look at everything, train on rollouts played here, sum up.

What can be known before the first step is a UserError of `prepare`; what breaks later ends the run with a summary that
says so. Run folder, names and checkpoints are those of train_sql_agent.py.
"""

from __future__ import annotations

import logging
import secrets
import time
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console

from agl_plugin.audit.log import AuditLog
from agl_plugin.run.progress import Progress
from foundation import console, run_folder
from foundation.environment import end_trackers, prepare_trackers
from foundation.errors import RunError, UserError
from foundation.files import write_json
from foundation.processes import ProcessTree, keep_freed_memory
from sql_agent.agent.grading import scoring_of
from sql_agent.config import HOME, TrainConfig, merge
from sql_agent.data.bundled import ensure_data
from sql_agent.local.arguments import check_checkpoint, check_keys
from sql_agent.scoring.check import check_judge
from sql_agent.scoring.registry import ScoringContext
from sql_agent.serving.merged_start import start_of
from sql_agent.serving.models import model_folder
from sql_agent.training import preflight
from sql_agent.training.dry_run import dry_run
from sql_agent.training.ending import what_broke, write_summary
from sql_agent.training.health_rules import health_of
from sql_agent.training.job import EXIT, Job
from sql_agent.training.options import is_tiny
from sql_agent.training.probe import probed, told
from sql_agent.training.questions import load_data, total_steps
from sql_agent.training.summary import summary_table
from sql_agent.training.verl_config import verl_overrides
from sql_agent.tuning.job import prepare_process

logger = logging.getLogger(__name__)
PACKAGES = ("torch", "transformers", "verl", "peft")  # what a run in this process imports
OF_8_BITS = {"optimizer_impl": "bitsandbytes.optim", "optimizer": "AdamW8bit"}


def run_local(config: TrainConfig, terminal: Console) -> tuple[int, Path]:
    """Everything. Returns the exit status and the run folder. Raises UserError."""
    prepare_process(config)
    run = secrets.token_hex(8)
    with closing(scoring_of(config, run=run)) as scoring:
        job = prepare(config, run=run, scoring=scoring)
        terminal.print(
            f"recipe {job.config.recipe} on {job.config.trainer.device}, in one process: {job.steps} steps, judge: "
            f"{scoring.judge_name}\nmodel {job.model}"
        )
        terminal.print("\n".join(told(job.probed)), markup=False, end="\n" * any(told(job.probed)))
        run_dir = run_folder.new_run_folder(job.runs_dir, name=f"{config.recipe}-{config.logging.experiment}")
        prepare_trackers(run_dir)
        write_json(run_dir / run_folder.CONFIG, job.config.model_dump())
        summary = train(job, run_dir)
    terminal.print(summary_table(summary))
    return EXIT[summary["status"]], run_dir


def dry_run_local(config: TrainConfig, terminal: Console) -> int:
    """`--dry-run`: look at what needs no model, and count. Returns the exit status. Raises UserError."""
    check_keys(config)
    preflight.check_installed(PACKAGES, extra="gpu] or agentgrpo[cpu")
    ensure_data(config)
    return dry_run(config, terminal, verl=False)


def prepare(config: TrainConfig, *, run: str, scoring: ScoringContext) -> Job:
    """Look at keys, data, checkpoint, model, judge, trackers and disk, in order. Raises UserError."""
    check_keys(config)
    preflight.check_installed(PACKAGES, extra="gpu] or agentgrpo[cpu")
    ensure_data(config)
    preflight.check_devices(config)
    preflight.check_agent(config)
    runs_dir = HOME / Path(config.trainer.runs_dir).expanduser()
    questions, val = load_data(config, scoring)
    steps = total_steps(config, len(questions))
    config = preflight.resumed(config, runs_dir, steps=steps)
    if config.trainer.resume:
        check_checkpoint(Path(config.trainer.resume))
    preflight.check_adapter(config)
    preflight.check_loss(config)
    preflight.check_trackers(config.logging.trackers)
    model = model_folder(config, tiny=is_tiny(config))
    check_judge(scoring)
    preflight.check_disk(config, runs_dir, model)
    return Job(
        config,
        "local",
        run,
        runs_dir,
        start_of(config, model),
        questions,
        val,
        steps,
        scoring,
        probed(questions, scoring),
    )


def train(job: Job, run_dir: Path) -> dict[str, Any]:
    """Train with a quiet console; write and return the summary."""
    started = time.monotonic()
    with (
        console.quiet(run_dir / run_folder.LOG, enabled=not job.config.logging.debug) as terminal,
        ProcessTree() as tree,
        Progress(terminal, run_dir, what="loading the model"),
    ):
        error = fit(job, run_dir)
        end_trackers()
    total_s = time.monotonic() - started
    return write_summary(
        run_dir, error=error, total_s=total_s, peak_memory_gib=tree.peak_gib, facts={**job.facts(), "method": "local"}
    )


def fit(job: Job, run_dir: Path) -> str:
    """Play and update to the end. Returns what went wrong, for people, or ""."""
    try:
        _fit(job, run_dir)
    except (RunError, UserError) as exc:
        return str(exc)
    except KeyboardInterrupt:
        return ""
    except Exception as exc:
        return what_broke(exc, run_dir)
    return ""


def _fit(job: Job, run_dir: Path) -> None:
    import torch

    from agl_plugin.update.composed import verl_config
    from sql_agent.local.endpoint import PolicyEndpoint
    from sql_agent.local.grpo import Run, limits_of, train
    from sql_agent.local.notes import Notes, settings_of
    from sql_agent.local.policy import Policy
    from sql_agent.local.rollouts import Player
    from sql_agent.local.sampling import Sampler
    from sql_agent.tuning.watch import Stop

    config, rollout = job.config, job.config.rollout
    keep_freed_memory()
    overrides = verl_overrides(config, model_path=str(job.model), run_dir=run_dir, total_steps=job.steps)
    if config.local.optimizer == "adamw_8bit":
        overrides = merge(overrides, {"actor_rollout_ref": {"actor": {"optim": OF_8_BITS}}})
    torch.manual_seed(config.trainer.seed)  # an adapter begins with random numbers
    verl = verl_config(overrides)
    policy = Policy(config, job.model, verl=verl)
    limits, tokenizer = limits_of(config), policy.tokenizer
    endpoint = PolicyEndpoint(tokenizer, context_tokens=rollout.context_tokens, max_tokens=rollout.max_response_tokens)
    audited = AuditLog(run_dir, settings=settings_of(config, overrides)) if config.logging.audit else nullcontext()
    with audited as log, endpoint, closing(Player(config, endpoint, job.scoring)) as player, Stop() as stop:
        told: dict[str, Any] = {"max_batch": config.local.max_batch, "log_probs": rollout.sampler_logprobs}
        train(
            Run(
                config=config,
                policy=policy,
                sampler=Sampler(policy.model, tokenizer, **told),
                player=player,
                notes=Notes(run_dir, verl=verl, health=health_of(config), audit=log, limits=limits, n_steps=job.steps),
                train=job.train,
                val=job.val,
                n_steps=job.steps,
                checkpoints=run_dir / run_folder.CHECKPOINTS,
                stop=stop,
            )
        )
