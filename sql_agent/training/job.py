"""The story of a GRPO run: look at everything, claim the store, train, sum up. verl and one process are its back ends.

What can be known before the first step is a UserError of `prepare`, which derives all that the run goes by.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from agl_plugin.options import DaemonOptions, TrainerOptions
from agl_plugin.patches.install import install_at_start
from agl_plugin.run.progress import STARTING
from foundation import console, run_folder
from foundation.environment import prepare_environment
from foundation.errors import RunError, UserError
from foundation.marks import model_marks
from sql_agent.agent.grading import scoring_of
from sql_agent.agent.toolset import fingerprints_of
from sql_agent.config import TrainConfig
from sql_agent.data.dataset import facts_of, to_row
from sql_agent.records import Question
from sql_agent.scoring.check import check_judge
from sql_agent.scoring.registry import ScoringContext
from sql_agent.serving.merged_start import merged_start
from sql_agent.serving.models import model_folder
from sql_agent.training import preflight
from sql_agent.training.ancestry import ancestors
from sql_agent.training.assembly import daemon_options, make_trainer
from sql_agent.training.context import check_context
from sql_agent.training.health_rules import health_of
from sql_agent.training.plan import EXIT, Plan, carry_out
from sql_agent.training.probe import FieldProbe, findings, probed
from sql_agent.training.questions import load_data, total_steps
from sql_agent.training.stored import source_of
from sql_agent.training.summary import summary_table
from sql_agent.training.verl_config import curriculum_rules, keep_rules, update_rules, verl_overrides
from sql_agent.training.verl_keys import check_verl


@dataclass(frozen=True, kw_only=True)
class GrpoPlan(Plan):
    """`method` is grpo or local; `run` names it where the judge's budget is kept; `verl` overrides verl's keys."""

    method: str
    run: str
    train: list[Question]
    val: list[Question]
    scoring: ScoringContext
    verl: dict[str, Any]
    daemon: DaemonOptions
    trainer: TrainerOptions
    probed: list[FieldProbe] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        data = self.config.data
        return {
            **super().facts(),
            "method": self.method,
            "judge": self.scoring.judge_name,
            "probe": [field.model_dump() for field in self.probed],
            "goes_on_from": self.trainer.goes_on_from,
            "data": {
                "train": self._stored or facts_of(data.training, self.train),
                "val": facts_of(data.validation, self.val),
                **{name: {"fingerprint": fingerprint} for name, fingerprint in fingerprints_of(self.config).items()},
            },
        }

    @property
    def _stored(self) -> dict[str, Any]:
        if not (source := self.trainer.from_store):
            return {}
        return {"source": source["folder"], "fingerprint": source["sha256"][:16], "questions": len(self.train)}

    def write_down(self) -> None:
        """The configuration and the judge's own prompt in the run folder, and where trackers write."""
        super().write_down()
        if self.config.reward.judge.prompt and self.scoring.llm:
            (self.run_dir / run_folder.JUDGE_PROMPT).write_text(self.scoring.llm.prompt, encoding="utf-8")


def run_training(config: TrainConfig, *, role: str, terminal: Console, python: Path | None = None) -> tuple[int, Path]:
    """GRPO with verl: everything of the algorithm's side. Returns the exit status and the run folder. UserError.

    `python` runs Ray's workers.
    """

    check_verl(config)
    if config.optim.teacher and not config.optim.teacher.startswith("http"):
        raise UserError(
            f"optim.teacher = {config.optim.teacher}: verl's workers load no second model. Serve it with vLLM and give "
            "its address, or train with --backend local"
        )
    return run_grpo(
        config,
        terminal,
        check=lambda _checkpoint: preflight.check_packages(),
        within=claimed,
        fit=lambda plan: fit(plan, role=role, python=python),
    )


def run_grpo(
    config: TrainConfig,
    terminal: Console,
    *,
    check: Callable[[str], None],
    fit: Callable[[GrpoPlan], None],
    within: Callable[[GrpoPlan], AbstractContextManager[None]] = lambda _: nullcontext(),
    method: str = "grpo",
    begins: str = STARTING,
) -> tuple[int, Path]:
    """GRPO by a back end: `check` looks at what that needs, and `fit` trains, `within` a context. Raises UserError.

    `check` gets the checkpoint to go on from, or ""; `method` is what the summary calls the back end; `begins` is said
    while nothing is trained yet.
    """
    run = secrets.token_hex(8)
    terminal.print(f"recipe {config.recipe}: checking questions, model and judge", markup=False)
    with closing(scoring_of(config, run=run)) as scoring:
        plan = prepare(config, run=run, scoring=scoring, method=method, check=check)
        where = f"{config.trainer.device}, in one process" if method == "local" else config.trainer.device
        lines = [f"recipe {config.recipe} on {where}: {plan.steps} steps, judge: {scoring.judge_name}"]
        lines += [f"goes on from {resumed}"] if (resumed := plan.config.trainer.resume) else []
        terminal.print("\n".join([*lines, f"model {plan.model}", *findings(plan.probed)]), markup=False)
        with within(plan):
            plan.write_down()
            summary = carry_out(plan, lambda: fit(plan), begins=begins)
    terminal.print(summary_table(summary))
    return EXIT[summary["status"]], plan.run_dir


def prepare(
    config: TrainConfig, *, run: str, scoring: ScoringContext, method: str, check: Callable[[str], None]
) -> GrpoPlan:
    """Look at data, checkpoint, packages, model, judge, trackers and disk, in order, and derive. Raises UserError."""
    questions, val = load_data(config, scoring)
    steps = total_steps(config, len(questions))
    config = preflight.resumed(config, steps=steps)
    check(config.trainer.resume)
    preflight.check_adapter(config.model)
    preflight.check_loss(config.optim.loss)
    preflight.check_trackers(config.logging.trackers)
    model = model_folder(config.model, tiny=config.is_tiny)
    source = source_of(config.data, config.trainer.runs, model)
    probed_questions = val if config.data.from_store else questions
    preflight.check_parallel(config.trainer, config.rollout, model)
    if not config.is_tiny:  # it asks once or twice, whatever it may
        check_context(config, model, probed_questions)
    check_judge(scoring)
    preflight.check_disk(config.trainer, model, lora=config.model.lora_rank > 0)
    start = merged_start(model, config.merged_adapter)
    paying = probed(probed_questions, scoring)
    run_dir = run_folder.new_run_folder(config.trainer.runs, name=config.run_name)
    health = health_of(config.health, config, max_response_tokens=config.rollout.max_response_tokens)
    return GrpoPlan(
        config=config,
        run_dir=run_dir,
        model=start,
        steps=steps,
        method=method,
        run=run,
        train=questions,
        val=val,
        scoring=scoring,
        verl=verl_overrides(config, model_path=str(start), run_dir=run_dir, total_steps=steps),
        daemon=daemon_options(config.rollout, config.store, seed=config.trainer.seed, scoring=scoring),
        trainer=TrainerOptions(
            update=update_rules(config),
            health=health,
            keep=keep_rules(config.trainer),
            curriculum=curriculum_rules(config.data.curriculum),
            from_store=source,
            goes_on_from=ancestors(config.model_dump(mode="json")),
        ),
        probed=paying,
    )


def prepare_stack(*, cpu: bool, offline: bool, lora: bool, gateway: bool) -> None:
    """What must be there before the stack is imported: environment, and the patches of the start."""
    prepare_environment(cpu=cpu, offline=offline, lora=lora)
    if gateway:
        install_at_start()


@contextmanager
def claimed(plan: GrpoPlan) -> Iterator[None]:
    """The external store held for the run. Raises UserError while another run holds it, and leaves no run folder."""
    config = plan.config
    lora, gateway = config.model.lora_rank > 0, config.rollout.proxy == "gateway"
    prepare_stack(cpu=config.trainer.device == "cpu", offline=True, lora=lora, gateway=gateway)
    with ExitStack() as stack:
        if address := config.store.external_address:
            from agl_plugin.run.store_claim import StoreClaim

            try:
                stack.enter_context(StoreClaim(address, run=plan.run_dir.name, keep_spans=config.store.keep_spans))
            except RunError as exc:
                shutil.rmtree(plan.run_dir)
                raise UserError(str(exc)) from exc
        yield
        if not config.logging.debug:
            # Threads of agent-lightning try a store that died again and again, and log it.
            console.close_output(plan.run_dir / run_folder.LOG)


def fit(plan: GrpoPlan, *, role: str, python: Path | None) -> None:
    """Run verl's algorithm, and the runners unless they are elsewhere."""
    from agl_plugin.algorithm import Grpo, Job
    from sql_agent.training.lit_agent import SqlAgent

    config, run_dir = plan.config, plan.run_dir
    job = Job(plan.verl, run_dir, plan.daemon, plan.trainer, audit=config.logging.audit)
    algorithm = Grpo(job, cpu=config.trainer.device == "cpu", python=python)
    trainer = make_trainer(
        config.rollout, config.store, role=role, algorithm=algorithm, run_dir=run_dir, debug=config.logging.debug
    )
    agent = SqlAgent(config, run=plan.run, marks=model_marks(plan.model))
    trainer.fit(agent, [to_row(q) for q in plan.train], val_dataset=[to_row(q) for q in plan.val])


def run_runners(config: TrainConfig) -> int:
    """The runners' side alone (AGL_CURRENT_ROLE=runner): no model is loaded, no run folder is made."""
    prepare_stack(cpu=True, offline=False, lora=config.model.lora_rank > 0, gateway=config.rollout.proxy == "gateway")
    from sql_agent.training.lit_agent import SqlAgent

    trainer = make_trainer(
        config.rollout, config.store, role="runner", algorithm=None, run_dir=None, debug=config.logging.debug
    )
    trainer.fit(SqlAgent(config, run=secrets.token_hex(8)), [], val_dataset=[])
    return 0
