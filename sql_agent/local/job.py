"""The story of a run in one process: look at everything, train on rollouts played here, sum up.

What can be known before the first step is a UserError; run folder, names and checkpoints are those of verl's back end.
"""

from __future__ import annotations

from contextlib import closing, nullcontext
from pathlib import Path

from rich.console import Console

from agl_plugin.audit.log import AuditLog
from agl_plugin.audit.stored import StoredRun
from agl_plugin.run.kept import Checkpoints
from agl_plugin.run.question_order import QuestionOrder
from foundation import run_folder
from foundation.environment import prepare_environment
from foundation.processes import keep_freed_memory
from foundation.versions import versions
from sql_agent.config import TrainConfig, merge
from sql_agent.data.bundled import ensure_data
from sql_agent.data.dataset import to_row
from sql_agent.local.arguments import check_checkpoint, check_keys
from sql_agent.training import preflight
from sql_agent.training.dry_run import dry_run
from sql_agent.training.job import GrpoPlan, run_grpo

PACKAGES = ("torch", "transformers", "verl", "peft")  # what a run in this process imports
OF_8_BITS = {"optimizer_impl": "bitsandbytes.optim", "optimizer": "AdamW8bit"}


def run_local(config: TrainConfig, terminal: Console) -> tuple[int, Path]:
    """Everything. Returns the exit status and the run folder. Raises UserError."""
    prepare_environment(cpu=config.trainer.device == "cpu", offline=False)
    _check(config)
    preflight.check_devices(config.trainer, config.rollout)
    preflight.check_agent(config)
    return run_grpo(config, terminal, check=check_checkpoint, fit=_fit, method="local", begins="loading the model")


def dry_run_local(config: TrainConfig, terminal: Console) -> int:
    """`--dry-run`: look at what needs no model, and count. Returns the exit status. Raises UserError."""
    _check(config)
    return dry_run(config, terminal, verl=False)


def _check(config: TrainConfig) -> None:
    check_keys(config)
    preflight.check_installed(PACKAGES, extra="gpu] or agentgrpo[cpu")
    ensure_data(config.data, config)


def _fit(plan: GrpoPlan) -> None:
    import torch

    from agl_plugin.notes import Notes, tracking_of
    from agl_plugin.update.composed import verl_config
    from foundation.processes import Stop
    from sql_agent.local.endpoint import PolicyEndpoint
    from sql_agent.local.grpo import Run, train
    from sql_agent.local.policy import Policy
    from sql_agent.local.rollouts import Player
    from sql_agent.local.sampling import Sampler

    config, rollout = plan.config, plan.config.rollout
    keep_freed_memory()
    overrides = plan.verl
    if config.local.optimizer == "adamw_8bit":
        overrides = merge(overrides, {"actor_rollout_ref": {"actor": {"optim": OF_8_BITS}}})
    torch.manual_seed(config.trainer.seed)  # an adapter begins with random numbers
    verl = verl_config(overrides)
    policy = Policy(config, plan.model, verl=verl)
    model, tokenizer = policy.model, policy.tokenizer
    endpoint = PolicyEndpoint(tokenizer, context_tokens=rollout.context_tokens, max_tokens=rollout.max_response_tokens)
    order, health, source = _order(plan), plan.trainer.health, plan.trainer.from_store
    if config.trainer.resume:
        order.load(Path(config.trainer.resume))
        health.load(Path(config.trainer.resume))
    checkpoints = plan.run_dir / run_folder.CHECKPOINTS
    settings = {"verl": overrides, "versions": versions(), "trainer": "one process", **plan.trainer.audit_settings}
    with (
        AuditLog(plan.run_dir, settings=settings) if config.logging.audit else nullcontext() as audit,
        endpoint,
        closing(Player(config, endpoint, plan.scoring, seed=config.trainer.seed)) as player,
        Stop() as stop,
    ):
        run = Run(
            plan=plan,
            policy=policy,
            sampler=Sampler(model, tokenizer, max_batch=config.local.max_batch, log_probs=rollout.sampler_logprobs),
            player=player,
            notes=Notes(plan.run_dir, n_steps=plan.steps, health=health, tracking=tracking_of(verl), audit=audit),
            order=order,
            checkpoints=Checkpoints(checkpoints, plan.trainer.keep, resumed=config.trainer.resume),
            stop=stop,
            stored=StoredRun(Path(source["folder"])) if source else None,
        )
        train(run)


def _order(plan: GrpoPlan) -> QuestionOrder:
    """The questions of each step."""
    data = plan.config.data
    return QuestionOrder(
        [to_row(question) for question in plan.train],
        n=plan.config.optim.questions_per_step,
        seed=data.seed,
        weights=[file.weight for file in data.train_files],
        curriculum=plan.trainer.curriculum,
    )
