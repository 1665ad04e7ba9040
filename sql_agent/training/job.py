"""The story of a run: look at everything, claim the store, train, sum up.

What can be known before the first step is a UserError of `prepare`; what breaks later ends the run with a summary that
says so. Whatever happens, the run folder keeps what the run had.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from agl_plugin.patches.install import install_at_start
from agl_plugin.run.progress import Progress
from foundation import console, run_folder
from foundation.environment import prepare_environment, prepare_trackers
from foundation.errors import RunError, UserError
from foundation.files import write_json
from foundation.processes import ProcessTree
from foundation.versions import versions
from sql_agent.agent.grading import scoring_of
from sql_agent.agent.toolset import fingerprints_of
from sql_agent.config import HOME, TrainConfig
from sql_agent.data.dataset import to_row
from sql_agent.data.files import facts_of
from sql_agent.records import Question
from sql_agent.scoring.check import check_judge
from sql_agent.scoring.registry import ScoringContext
from sql_agent.serving.merged_start import start_of
from sql_agent.serving.models import model_folder
from sql_agent.training import preflight
from sql_agent.training.ancestry import ancestors
from sql_agent.training.assembly import make_agent, make_algorithm, make_trainer
from sql_agent.training.context import check_context
from sql_agent.training.ending import what_broke, write_summary
from sql_agent.training.options import is_tiny
from sql_agent.training.probe import FieldProbe, probed, told
from sql_agent.training.questions import load_data, total_steps
from sql_agent.training.summary import summary_table
from sql_agent.training.verl_keys import check_verl

logger = logging.getLogger(__name__)

EXIT = {"finished": 0, "failed": 1, "interrupted": 130}


@dataclass(frozen=True)
class Job:
    """A run that was looked at. `run` names it where the judge's budget is kept."""

    config: TrainConfig
    role: str
    run: str
    runs_dir: Path
    model: Path
    train: list[Question]
    val: list[Question]
    steps: int
    scoring: ScoringContext
    probed: list[FieldProbe] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """What the summary says of it, whatever happens."""
        config, data = self.config, self.config.data
        return {
            "recipe": config.recipe,
            "total_steps": self.steps,
            "device": config.trainer.device,
            "judge": self.scoring.judge_name,
            "probe": [one.model_dump() for one in self.probed],
            "versions": versions(),
            "goes_on_from": ancestors(config.model_dump(mode="json")),
            "model": {"path": str(self.model), "tiny_policy": is_tiny(config), "lora_rank": config.model.lora_rank},
            "data": {
                "train": facts_of(data.training, self.train),
                "val": facts_of(data.validation, self.val),
                **{name: {"fingerprint": found} for name, found in fingerprints_of(config).items()},
            },
        }


def run_training(config: TrainConfig, *, role: str, terminal: Console) -> tuple[int, Path]:
    """Everything of the algorithm's side. Returns the exit status and the run folder. Raises UserError."""
    run = secrets.token_hex(8)
    with closing(scoring_of(config, run=run)) as scoring:
        job = prepare(config, role=role, run=run, scoring=scoring)
        terminal.print(
            f"recipe {job.config.recipe} on {job.config.trainer.device}: {job.steps} steps, judge: "
            f"{scoring.judge_name}\nmodel {job.model}"
        )
        terminal.print("\n".join(told(job.probed)), markup=False, end="\n" * any(told(job.probed)))
        with made_run_folder(job) as run_dir:
            summary = train(job, run_dir)
            if not config.logging.debug:
                # Threads of agent-lightning try a store that died again and again, and log it.
                console.close_output(run_dir / run_folder.LOG)
    terminal.print(summary_table(summary))
    return EXIT[summary["status"]], run_dir


def prepare(config: TrainConfig, *, role: str, run: str, scoring: ScoringContext) -> Job:
    """Look at verl's keys, data, checkpoint, packages, model, judge, trackers and disk, in order. Raises UserError."""
    check_verl(config)
    runs_dir = HOME / Path(config.trainer.runs_dir).expanduser()
    questions, val = load_data(config, scoring)
    steps = total_steps(config, len(questions))
    config = preflight.resumed(config, runs_dir, steps=steps)
    preflight.check_packages()
    if role != "runner":
        preflight.check_store_port(config)
    preflight.check_adapter(config)
    preflight.check_loss(config)
    preflight.check_trackers(config.logging.trackers)
    model = model_folder(config, tiny=is_tiny(config))
    if not is_tiny(config):  # it asks once or twice, whatever it may
        check_context(config, model, questions)
    check_judge(scoring)
    preflight.check_disk(config, runs_dir, model)
    return Job(
        config, role, run, runs_dir, start_of(config, model), questions, val, steps, scoring, probed(questions, scoring)
    )


def _prepare(config: TrainConfig, *, cpu: bool, offline: bool) -> None:
    """What must be there before the stack is imported: environment, and the patches of the start."""
    prepare_environment(cpu=cpu, offline=offline, lora=config.model.lora_rank > 0)
    if config.rollout.proxy == "gateway":
        install_at_start()


@contextmanager
def made_run_folder(job: Job) -> Iterator[Path]:
    """A new run folder, and the external store held for it. Raises UserError while another run holds the store."""
    config = job.config
    _prepare(config, cpu=config.trainer.device == "cpu", offline=True)
    run_dir = run_folder.new_run_folder(job.runs_dir, name=f"{config.recipe}-{config.logging.experiment}")
    prepare_trackers(run_dir)
    write_json(run_dir / run_folder.CONFIG, config.model_dump())
    if config.reward.judge.prompt and job.scoring.llm:
        (run_dir / run_folder.JUDGE_PROMPT).write_text(job.scoring.llm.prompt, encoding="utf-8")
    with ExitStack() as held:
        if config.store.external_address:
            from agl_plugin.run.store_claim import StoreClaim

            try:
                claim = StoreClaim(config.store.external_address, run=run_dir.name, keep_spans=config.store.keep_spans)
                held.enter_context(claim)
            except RunError as exc:
                shutil.rmtree(run_dir)
                raise UserError(str(exc)) from exc
        yield run_dir


def train(job: Job, run_dir: Path) -> dict[str, Any]:
    """Train with a quiet console and no process left behind; write and return the summary."""
    started = time.monotonic()
    with (
        console.quiet(run_dir / run_folder.LOG, enabled=not job.config.logging.debug) as terminal,
        ProcessTree() as tree,
        Progress(terminal, run_dir),
    ):
        error = fit(job, run_dir)
    total_s = time.monotonic() - started
    return write_summary(run_dir, error=error, total_s=total_s, peak_memory_gib=tree.peak_gib, facts=job.facts())


def fit(job: Job, run_dir: Path) -> str:
    """Run the algorithm, and the runners unless they are elsewhere. Returns what went wrong, for people, or ""."""
    try:
        algorithm = make_algorithm(job.config, model=job.model, run_dir=run_dir, steps=job.steps, scoring=job.scoring)
        trainer = make_trainer(job.config, role=job.role, algorithm=algorithm, run_dir=run_dir)
        agent = make_agent(job.config, run=job.run, model=job.model)
        trainer.fit(agent, [to_row(q) for q in job.train], val_dataset=[to_row(q) for q in job.val])
    except RunError as exc:
        return str(exc)
    except Exception as exc:
        return what_broke(exc, run_dir)
    return ""


def run_runners(config: TrainConfig) -> int:
    """The runners' side alone (AGL_CURRENT_ROLE=runner): no model is loaded, no run folder is made."""
    _prepare(config, cpu=True, offline=False)
    trainer = make_trainer(config, role="runner", algorithm=None, run_dir=None)
    trainer.fit(make_agent(config, run=secrets.token_hex(8)), [], val_dataset=[])
    return 0
