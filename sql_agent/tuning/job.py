"""The story of a run with TRL: look at everything, read and encode the data, train, sum up.

What can be known before the first step is a UserError of `prepare`; what breaks later ends the run with a summary that
says so. Run folder, names and checkpoints are those of GRPO.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from foundation import console, run_folder
from foundation.environment import end_trackers, prepare_environment, prepare_trackers
from foundation.errors import RunError, UserError
from foundation.files import write_json
from foundation.modules import hidden
from foundation.processes import ProcessTree, keep_freed_memory
from foundation.versions import versions
from sql_agent.config import HOME, TrainConfig, TuneConfig, build_config
from sql_agent.data.bundled import ensure_data
from sql_agent.data.dataset import fingerprint
from sql_agent.serving.checkpoints import find_checkpoint
from sql_agent.serving.merged_start import start_of
from sql_agent.serving.models import model_folder
from sql_agent.training import preflight
from sql_agent.training.ending import what_broke, write_summary
from sql_agent.training.job import EXIT
from sql_agent.training.options import is_tiny
from sql_agent.tuning.choice import best, mined
from sql_agent.tuning.encoding import Encoded, Encoder
from sql_agent.tuning.sources import FORMS, Pair, Source, read_source
from sql_agent.tuning.summary import tuning_table

logger = logging.getLogger(__name__)

TRL = ("torch", "transformers", "trl", "peft", "datasets")  # what a run in this process imports
COMPARED_ON_RESUME = ("agent", "agents", "database", "data", "model")
# A longer run of the same kind goes on from a shorter one.
FREE_ON_RESUME = ("epochs", "max_steps", "output_dir")
Rows = Sequence[Encoded] | Sequence[tuple[Encoded, Encoded]]


@dataclass(frozen=True)
class Job:
    """A run that was looked at."""

    config: TrainConfig
    runs_dir: Path
    model: Path
    tokenizer: Any
    source: Source
    rows: Rows
    steps: int

    @property
    def tune(self) -> TuneConfig:
        """The section of this run."""
        return section_of(self.config)

    def facts(self) -> dict[str, Any]:
        """What the summary says of it, whatever happens."""
        config, source = self.config, self.source
        rows = [row for one in self.rows for row in (one if isinstance(one, tuple) else [one])]
        data = {"fingerprint": fingerprint(source.file)} if source.file else {}
        return {
            "method": config.method,
            "recipe": config.recipe,
            "total_steps": self.steps,
            "device": config.trainer.device,
            "judge": "none",
            "versions": versions(),
            "model": {"path": str(self.model), "tiny_policy": is_tiny(config), "lora_rank": config.model.lora_rank},
            "data": {"train": {**data, "source": source.name, "rows": len(self.rows), "left_out": source.left_out}},
            "tokens": {"all": sum(map(len, rows)), "supervised": sum(sum(row.mask) for row in rows)},
        }


def section_of(config: TrainConfig) -> TuneConfig:
    """[sft] or [dpo]."""
    return config.sft if config.method == "sft" else config.dpo


def run_tuning(config: TrainConfig, terminal: Console) -> tuple[int, Path]:
    """Everything. Returns the exit status and the run folder. Raises UserError."""
    prepare_process(config)
    job = prepare(config)
    tokens, left = job.facts()["tokens"], sum(job.source.left_out.values())
    what = "rows" if config.method == "sft" else "pairs"
    terminal.print(
        f"{config.method} on {config.trainer.device}: {len(job.rows)} {what} of {job.source.name}, {left} left out, "
        f"{tokens['supervised']} of {tokens['all']} tokens supervised, {job.steps} steps\nmodel {job.model}",
        markup=False,
    )
    for reason, n in job.source.left_out.most_common(5):
        terminal.print(f"left out: {n} x {reason}", markup=False)
    config = job.config
    name = f"{config.recipe or config.method}-{config.logging.experiment}"
    run_dir = run_folder.new_run_folder(job.runs_dir, name=name)
    prepare_trackers(run_dir)
    write_json(run_dir / run_folder.CONFIG, config.model_dump())
    summary = train(job, run_dir)
    terminal.print(tuning_table(summary))
    return EXIT[summary["status"]], run_dir


def prepare_process(config: TrainConfig) -> None:
    """The environment of a run in this process; before torch is imported."""
    prepare_environment(cpu=config.trainer.device == "cpu", offline=False)
    # Read when torch is loaded: its threads would spin while they wait, which beside other work costs many times more.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def light_trl(config: TrainConfig) -> AbstractContextManager[None]:
    """Within it TRL is imported without vLLM, and without wandb where no tracker needs it: half of its time."""
    return hidden("vllm", *(() if "wandb" in config.logging.trackers else ("wandb",)))


def prepare(config: TrainConfig) -> Job:
    """Look at checkpoint, trackers, output folder, model, data and disk, in order. Raises UserError."""
    runs_dir, tune = HOME / Path(config.trainer.runs_dir).expanduser(), section_of(config)
    preflight.check_installed(TRL, extra="reward-model")
    ensure_data(config)
    preflight.check_devices(config)
    preflight.check_trackers(config.logging.trackers)
    preflight.check_adapter(config)
    out = Path(tune.output_dir).expanduser()
    if tune.output_dir and out.exists():
        raise UserError(f"--out {out}: exists; name a new folder")
    checkpoint = find_checkpoint(config, runs_dir) if config.trainer.resume else None
    model = model_folder(config, tiny=is_tiny(config))
    tokenizer, source = _tokenizer(config, model), read_source(tune, config)
    rows = encoded(config, source, Encoder(tokenizer, config.agent.chat_template_kwargs))
    steps = n_steps(len(rows), tune)
    if checkpoint:
        compared = (*COMPARED_ON_RESUME, config.method)
        free = [f"{config.method}.{key}" for key in FREE_ON_RESUME]
        preflight.check_resume(config, checkpoint, steps=steps, compared=compared, free=free)
        config = build_config(config.model_dump(), {"trainer": {"resume": str(checkpoint)}})
    preflight.check_disk(config, runs_dir, model)
    return Job(config, runs_dir, start_of(config, model), tokenizer, source, rows, steps)


def _tokenizer(config: TrainConfig, model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model, trust_remote_code=config.model.allow_remote_code)


def encoded(config: TrainConfig, source: Source, encoder: Encoder) -> Rows:
    """The rows or pairs to train on; what is left out is counted in the source. Raises UserError when none is left."""
    tune, left = section_of(config), source.left_out
    if config.method == "sft":
        if source.pairs:
            raise UserError(f"--data {source.name}: holds pairs; `agentgrpo dpo` learns from them")
        chats, dropped = best(source.chats, config.sft) if source.are_rollouts else (source.chats, Counter())
        made = [Encoded.of(row) for chat in chats[: tune.max_samples or None] for row in encoder.rows(chat)]
        rows: Any = [row for row in made if len(row) <= tune.max_tokens]
    else:
        if source.chats and not source.are_rollouts:
            raise UserError(f"--data {source.name}: holds no pairs and no rollouts to make pairs of; {FORMS}")
        found, dropped = mined(source.chats, config.dpo)
        pairs = [*source.pairs, *found][: tune.max_samples or None]
        made = [pair for one in pairs if (pair := _encoded_pair(one, encoder, left))]
        rows = [pair for pair in made if max(map(len, pair)) <= tune.max_tokens]
    left.update(dropped)
    left["longer than max_tokens"] += len(made) - len(rows)
    source.left_out = +left
    if not rows:
        raise UserError(f"--data {source.name}: nothing is left to train on; left out: {dict(source.left_out)}")
    return rows


def _encoded_pair(pair: Pair, encoder: Encoder, left: Counter[str]) -> tuple[Encoded, Encoded] | None:
    sides = [encoder.rows(chat) for chat in (pair.chosen, pair.rejected)]
    if any(len(rows) != 1 for rows in sides):
        left["a pair whose calls do not share one row"] += 1
        return None
    return Encoded.of(sides[0][0]), Encoded.of(sides[1][0])


def n_steps(n_rows: int, tune: TuneConfig) -> int:
    """Optimizer steps of the whole run; one may hold rows of two epochs, and the last one fewer."""
    steps = -(-n_rows * tune.epochs // (tune.batch_size * tune.gradient_accumulation_steps))
    return min(steps, tune.max_steps or steps)


def train(job: Job, run_dir: Path) -> dict[str, Any]:
    """Train with a quiet console; write and return the summary."""
    started = time.monotonic()
    with (
        console.quiet(run_dir / run_folder.LOG, enabled=not job.config.logging.debug) as terminal,
        ProcessTree() as tree,
    ):
        error = fit(job, run_dir, terminal)
        end_trackers()
    total_s = time.monotonic() - started
    return write_summary(run_dir, error=error, total_s=total_s, peak_memory_gib=tree.peak_gib, facts=job.facts())


def fit(job: Job, run_dir: Path, terminal: Console) -> str:
    """Run TRL's trainer. Returns what went wrong, for people, or ""."""
    config = job.config
    with light_trl(config):
        from sql_agent.tuning.models import load_model
        from sql_agent.tuning.trainers import dpo_trainer, sft_trainer
        from sql_agent.tuning.watch import Stop, Watch

    keep_freed_memory()
    told = {"run_dir": run_dir, "checkpoints": run_dir / run_folder.CHECKPOINTS, "steps": job.steps}
    make: Any = sft_trainer if config.method == "sft" else dpo_trainer
    if config.method == "dpo" and config.dpo.loss == "kto":
        from sql_agent.tuning.unpaired import kto_trainer as make
    try:
        with Stop() as stop:
            trainer = make(config, load_model(config, job.model), job.tokenizer, job.rows, **told)
            trainer.add_callback(Watch(run_dir, terminal, stop, saves=config.trainer.save_every > 0))
            resume = config.trainer.resume
            trainer.train(resume_from_checkpoint=str(Path(resume) / "actor") if resume else None)
    except RunError as exc:
        return str(exc)
    except KeyboardInterrupt:
        return ""
    except Exception as exc:
        return what_broke(exc, run_dir)
    return ""
