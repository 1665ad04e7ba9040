"""`agentgrpo evaluate`: a model on held-out questions, or two against each other."""

from __future__ import annotations

import asyncio
import logging
import shlex
import sys
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from foundation.command import given
from foundation.console import Heartbeat, duration, log_warnings, notes
from foundation.errors import UserError
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import HOME
from sql_agent.errors import LLMFault
from sql_agent.evaluation import folder as eval_folder
from sql_agent.evaluation.plan import Evaluation, prepare, report
from sql_agent.evaluation.results import EvalReport
from sql_agent.evaluation.targets import label, model_folder, running
from sql_agent.evaluation.trials import Setting, play
from sql_agent.evaluation.view import markdown, show
from sql_agent.records import TrialKey, TrialRecord
from sql_agent.scoring.check import check_scorers

EVALUATIONS = HOME / "runs" / "evaluations"
# A resumed evaluation may be given these anew; all else stands in its plan.
SAMPLES = 4
HAS_INSPECT = find_spec("inspect_ai") is not None
FREE = {"resume", "concurrency", "inspect_log"}


class Meter:
    """How far all trials are, of all models together: a bar with the time left on a terminal, a line now and then
    elsewhere. A context manager; not for several threads."""

    def __init__(self, console: Console, *, total: int) -> None:
        self._console = console
        self._said = ""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        # Trials end in bursts, as many as are in flight: the speed is taken over ten minutes.
        self._bar = Progress(
            *columns,
            *(TextColumn("left"), TimeRemainingColumn()),
            console=console,
            disable=not console.is_terminal,
            speed_estimate_period=600.0,
        )
        self._task = self._bar.add_task("", total=total)
        self._heartbeat = Heartbeat(console, self._now)

    def __enter__(self) -> Meter:
        self._bar.start()
        self._heartbeat.__enter__()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._heartbeat.__exit__()
        self._bar.stop()

    def describe(self, text: str, detail: str = "") -> None:
        """Say what is going on; without a terminal each text once, and no details."""
        self._bar.update(self._task, description=escape(f"{text}{detail}"))
        if not self._console.is_terminal and text != self._said:
            self._said = text
            self._console.print(text, markup=False)
            self._heartbeat.line_printed()

    def advance(self) -> None:
        self._bar.advance(self._task)

    def _now(self) -> str:
        (task,) = self._bar.tasks
        left = f", {duration(task.time_remaining)} left" if task.time_remaining else ""
        return f"{self._said}: {task.completed} of {task.total} trials{left}"


def play_all(evaluation: Evaluation, folder: Path, done: dict[TrialKey, TrialRecord], *, concurrency: int) -> None:
    """Play what `done` lacks; each record goes there and into the folder. Raises LLMFault, UserError."""
    todo = [trial for trial in evaluation.trials() if trial.key not in done]
    with Meter(notes, total=len(todo)) as meter:
        for target in evaluation.targets.values():
            model_folder(target, tell=meter.describe)

        def on_done(record: TrialRecord) -> None:
            eval_folder.keep(folder, record)
            done[record.key] = record
            meter.advance()

        for name, target in evaluation.targets.items():
            if mine := [trial for trial in todo if trial.model == name]:
                with EpisodeRunner(target.config) as runner, running(target, tell=meter.describe) as server:
                    meter.describe(f"{name} ({label(target)}; prompt: {target.config.agent.system_prompt})")
                    llm = replace(server.llm, logprobs=bool(evaluation.flags.get("vote")))
                    setting = Setting(llm, runner, evaluation.scoring)
                    try:
                        asyncio.run(play(mine, setting, concurrency=concurrency, on_done=on_done))
                    except LLMFault as fault:
                        raise LLMFault(server.explain(fault)) from fault


def write_inspect_logs(evaluation: Evaluation, folder: Path, results: EvalReport, records: list[TrialRecord]) -> None:
    """One log per model, split and decoding, below the folder."""
    notes.print(f"writing {len(records)} trials for inspect-ai", markup=False)
    from sql_agent.evaluation.inspect_log import write_logs

    prompts = {}
    for name, target in evaluation.targets.items():
        with EpisodeRunner(target.config) as runner:
            prompts[name] = {db_id: runner.prompt_for(db_id) for db_id in {record.db_id for record in records}}
    files = write_logs(folder / eval_folder.INSPECT, results, records, prompts)
    typed = shlex.quote(str(folder / eval_folder.INSPECT))
    notes.print(f"{len(files)} logs: inspect view --log-dir {typed}", markup=False)


def begin(flags: dict[str, Any], folder: Path, *, resumed: bool) -> tuple[Evaluation, dict[TrialKey, TrialRecord]]:
    """Prepare a new or a resumed evaluation, and the trials that it has already. Raises UserError."""
    if not resumed:
        if flags["after"] and flags["before"] == flags["after"]:
            notes.print("note: --before and --after are the same model: their difference shows the noise of sampling")
        evaluation = prepare(flags)
        eval_folder.start(folder, {"asked": evaluation.flags, "facts": evaluation.facts})
        return evaluation, {}
    plan = eval_folder.read_plan(folder)
    evaluation = prepare(plan["asked"])
    eval_folder.check_same(folder, plan["facts"], evaluation.facts)
    done = eval_folder.finished(folder)
    notes.print(f"{len(done)} of {len(evaluation.trials())} trials are there already")
    return evaluation, done


def check_flags(context: typer.Context, *, resume: Path | None, inspect_log: bool | None) -> None:
    """Raise UserError for flags that exclude each other, or need what is not installed."""
    if inspect_log and not HAS_INSPECT:
        raise UserError("--inspect-log: inspect-ai is not installed; install the extra eval (uv sync --extra eval)")
    if resume and (foreign := given(context, but=FREE)):
        raise UserError(f"--resume {resume}: everything stands in its {eval_folder.PLAN}; leave out {foreign}")


def run(flags: dict[str, Any], folder: Path, *, resumed: bool, concurrency: int, inspect_log: bool) -> tuple[int, Path]:
    """Play, write and print; returns the exit status and the folder. What ends it early leaves partial results."""
    logging.getLogger("openai.agents").setLevel(logging.CRITICAL)
    began_s = time.monotonic()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    evaluation, done = begin(flags, folder, resumed=resumed)
    status, problem = 0, ""
    with closing(evaluation.scoring) as scoring:
        for name, questions in evaluation.splits.items():
            check_scorers(questions, scoring, source=name)
        try:
            play_all(evaluation, folder, done, concurrency=concurrency)
        except KeyboardInterrupt:
            status, problem = 130, "interrupted"
        except LLMFault as fault:
            status, problem = 1, f"error: {fault}"
    records = [done[trial.key] for trial in evaluation.trials() if trial.key in done]
    results = report(evaluation, records, started=started, seconds=round(time.monotonic() - began_s, 1))
    results.write(folder / eval_folder.RESULTS)
    (folder / eval_folder.TABLES).write_text(markdown(results), encoding="utf-8")
    if inspect_log:
        write_inspect_logs(evaluation, folder, results, records)
    show(Console(highlight=False, width=None if sys.stdout.isatty() else 160), results)
    if problem:
        notes.print(f"{problem}\ncontinue with: agentgrpo evaluate --resume {shlex.quote(str(folder))}", markup=False)
    return status or int(any(record.reward is None for record in records)), folder


def evaluate(
    context: typer.Context,
    before: Annotated[
        str, typer.Option("--model", "--before", help="run, checkpoint, model folder, NAME@http://host/v1; empty: tiny")
    ] = "",
    after: Annotated[str, typer.Option(help="a second model, compared with the first question by question")] = "",
    split: Annotated[list[str] | None, typer.Option(help="bundled split, file or AGENT=FILE; may be repeated")] = None,
    limit: Annotated[int, typer.Option(min=0, help="questions per split, drawn with a fixed seed; 0: all")] = 120,
    samples: Annotated[
        int | None, typer.Option(min=1, help="sampled episodes per question, temperature 1 (default: 4, or --vote)")
    ] = None,
    vote: Annotated[
        int, typer.Option(min=0, help="measure also the answer that so many samples vote for, by equal results")
    ] = 0,
    concurrency: Annotated[int, typer.Option(min=1, help="episodes in flight")] = 32,
    recipe: Annotated[str, typer.Option(help="settings of a folder of recipes/ or a TOML file")] = "",
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="set any key")] = None,
    out: Annotated[Path | None, typer.Option(help="folder of the results (default: runs/evaluations/TIME)")] = None,
    resume: Annotated[Path | None, typer.Option(help="continue the evaluation in this folder")] = None,
    inspect_log: Annotated[
        bool | None, typer.Option("--inspect-log/--no-inspect-log", help="logs of inspect-ai (default: if installed)")
    ] = None,
) -> int:
    """Measure one model, or two against each other, on held-out questions: greedily and sampled.

    \b
    agentgrpo evaluate                                        the tiny policy on test_entities and test
    agentgrpo evaluate --before A --after runs/RUN            two models; paired differences with intervals
    agentgrpo evaluate --model gpt@http://host:8000/v1        a running server (key: OPENAI_API_KEY)
    agentgrpo evaluate --split my.jsonl --limit 0 --samples 8
    agentgrpo evaluate --vote 8                               beside greedy and pass@8, what 8 samples vote for
    agentgrpo evaluate --resume runs/evaluations/TIME         plays what is missing

    Writes results.json, results.md and, trial by trial, trials.jsonl; the last line is `evaluation: FOLDER`. Status
    1: not all trials were scored, or a server failed.
    """
    log_warnings()
    flags = {
        "before": before,
        "after": after,
        "split": split or [],
        "limit": limit,
        "vote": vote,
        "samples": samples or max(vote, 0 if vote else SAMPLES),
        "recipe": recipe,
        "set": set_ or [],
    }
    if vote and (vote == 1 or flags["samples"] < vote):
        raise UserError(
            f"--vote {vote} with --samples {flags['samples']}: 2 or more samples vote, and as many are drawn; raise one"
        )
    folder = (resume or out or EVALUATIONS / datetime.now().strftime("%Y%m%d-%H%M%S")).expanduser().absolute()
    check_flags(context, resume=resume, inspect_log=inspect_log)
    wants_log = HAS_INSPECT if inspect_log is None else inspect_log
    status, _ = run(flags, folder, resumed=resume is not None, concurrency=concurrency, inspect_log=wants_log)
    Console(highlight=False).print(f"evaluation: {folder}", soft_wrap=True, markup=False)
    return status
