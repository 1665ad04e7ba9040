"""`agentgrpo ask` and `chat`: the agent at work: each SQL query, its rows, the answer and the reward.

Guarantees: the episode and the reward are those of training (same EpisodeRunner, same scorers). Not covered: numbers
with confidence intervals.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from foundation import gpus, run_folder
from foundation.command import with_flags
from foundation.console import Heartbeat, clean, log_warnings, notes, tell
from foundation.errors import UserError
from foundation.files import read_object
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.agent.grading import scoring_of
from sql_agent.agent.toolset import databases_of
from sql_agent.agent.view import Outcome, as_json, show, summary_line
from sql_agent.config import (
    AgentTree,
    TrainConfig,
    agent_config,
    build_config,
    command_tree,
    data_path,
    load_recipe,
    resolve_system_prompt,
)
from sql_agent.config.commands import TRY
from sql_agent.data.bundled import ensure_bundled, ensure_databases
from sql_agent.data.dataset import load_questions
from sql_agent.errors import Fault, LLMFault
from sql_agent.evaluation.targets import export_folder, look_at, model_folder, served_checkpoint, settings_for
from sql_agent.records import Question
from sql_agent.scoring.check import check_scorers
from sql_agent.scoring.reward import score
from sql_agent.scoring.scorers import ScoringContext
from sql_agent.serving import models
from sql_agent.serving.chat import chat
from sql_agent.serving.endpoint import checked_endpoint, explain_fault, is_final
from sql_agent.serving.server import Server, serve_model

BUNDLED = "data/train.parquet"
# One drug's field, a search, a comparison: chosen as questions that the tiny policy answers, to show the agent at work.
# What a model is worth is measured by `agentgrpo evaluate`, on held-out questions.
FIRST_LOOK = ("train-0003", "train-0877", "train-0764")
TINY_RECIPE = "smoke_cpu"


def resolve_config(
    recipe: str, assignments: list[str], *, database: Path | None, model: str, endpoint: bool
) -> TrainConfig:
    """defaults < recipe, or what a run was trained with < --model, --database < --set, the prompt decided. Raises
    UserError."""
    if "://" in model and not endpoint:
        raise UserError(f"--model {model}: a running server is named by --base-url, and its model by --model")
    tiny = not endpoint and not model
    flags: dict[str, dict[str, str]] = {"model": {"path": model}} if model and not endpoint else {}
    if database is not None:
        flags["database"] = {"path": str(database.expanduser().absolute())}
    recipe = recipe or (TINY_RECIPE if tiny else "")
    is_run_or_own = not endpoint or served_checkpoint(model)
    brought = settings_for([model]) if is_run_or_own and not recipe else {}
    base = load_recipe(recipe) if recipe else brought
    config = build_config(base, command_tree(TRY, assignments, recipe=recipe, flags=flags))
    return resolve_system_prompt(config, tiny=tiny)


def choose_questions(texts: list[str], file: Path | None, *, limit: int | None) -> list[Question]:
    """The questions to ask: those given, those of a file, or three bundled ones.

    Raises UserError when there is none.
    """
    questions = [Question(id=f"q{i}", question=text) for i, text in enumerate(texts, start=1) if text.strip()]
    if limit and texts and file is None:
        raise UserError(f"--limit {limit}: is for the questions of a --file; leave it out")
    if texts and len(questions) < len(texts):
        raise UserError("--question: empty; give a text")
    if file is not None:
        questions += load_questions(data_path(str(file)))[:limit]
    if questions:
        return questions
    ensure_bundled(BUNDLED)
    bundled = {q.id: q for q in load_questions(data_path(BUNDLED))}
    return [bundled[name] for name in FIRST_LOOK][:limit]


@contextmanager
def own_server(config: TrainConfig) -> Iterator[Server]:
    """vLLM with the configured model, a run's, or the tiny policy. Raises UserError or LLMFault."""
    if path := config.model.path:
        folder = model_folder(look_at(path, config, option="--model"), tell=tell)
    else:
        notes.print("no endpoint and no --model: the tiny policy answers, as newly trained as it is found here")
        if not config.model.tiny and "sql" not in config.agent.tools:
            notes.print("it knows the SQL tool alone, and none of this recipe: name a --base-url or a --model")
        folder = trained_tiny_policy(config.trainer.runs) or models.model_folder(config.model, tiny=True)
    assert folder is not None
    notes.print(f"model {folder}", markup=False)
    device = "CPU" if gpus.on_cpu(config.trainer.device) else "GPU"
    starting = f"starting vLLM with {folder.name} on the {device}"
    with notes.status(starting) as status, Heartbeat(notes, lambda: starting):

        def on_wait(waited_s: float) -> None:
            status.update(f"{starting}: {waited_s:.0f} s")

        with serve_model(folder, config, on_wait=on_wait) as server:
            status.stop()
            yield server


def trained_tiny_policy(runs: Path) -> Path | None:
    """The model of the newest run that exported a trained tiny policy, as `make demo` does; None without one."""
    for summary in sorted(runs.glob(f"*/{run_folder.SUMMARY}"), key=lambda path: path.stat().st_mtime, reverse=True):
        exported = summary.parent / "model"
        if read_object(summary).get("model", {}).get("tiny_policy") and (exported / "config.json").is_file():
            return exported
    return None


async def ask_one(
    question: Question, llm: LLMEndpoint, *, runner: EpisodeRunner, scoring: ScoringContext
) -> tuple[Outcome, bool]:
    """One question; and whether a fault came up that would stop the next question too."""
    try:
        episode = await runner.run(question, llm)
    except Fault as fault:
        is_models = isinstance(fault, LLMFault)
        text = explain_fault(fault, llm, timeout_s=runner.config.agent.llm_timeout_s) if is_models else str(fault)
        return Outcome(question, fault_kind=fault.kind, fault=text), is_final(fault)
    return Outcome(question, episode, await score(episode, scoring)), False


def try_out(
    questions: list[Question], answering: AbstractContextManager[LLMEndpoint], config: AgentTree, *, as_lines: bool
) -> list[Outcome]:
    """Ask one after the other and print, until a fault would stop all the rest; who answers is begun when all else was
    checked. Raises UserError, LLMFault."""
    out = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    scoring = scoring_of(config)
    check_scorers(questions, scoring, may_be_unscored=True)
    outcomes: list[Outcome] = []

    async def ask_all(llm: LLMEndpoint) -> None:
        for number, question in enumerate(questions, start=1):
            with notes.status(f"question {number}/{len(questions)}"):
                outcome, is_last = await ask_one(question, llm, runner=runner, scoring=scoring)
            outcomes.append(outcome)
            if as_lines:
                # ASCII: a lone surrogate in an answer could not be written as UTF-8.
                print(json.dumps(as_json(outcome)), flush=True)
            else:
                show(out, outcome, number=number, of=len(questions))
            if is_last:
                break

    with EpisodeRunner(config) as runner, closing(scoring):
        ensure_databases(config)
        runner.check()
        with answering as llm:
            about = f"model {llm.model} at {llm.base_url}; judge: {scoring.judge_name}"
            data = "; ".join(f"{name}: {path}" for name, path in databases_of(config).items()) or "no database"
            notes.print(clean(f"{about}; prompt: {config.agent.system_prompt}; {data}"), markup=False, style="dim")
            asyncio.run(ask_all(llm))
            (notes if as_lines else out).print(f"\n{summary_line(outcomes)}", markup=False, soft_wrap=True)
            if n_left := len(questions) - len(outcomes):
                notes.print(f"{n_left} question(s) were not asked: they would fail in the same way")
    return outcomes


@dataclass(frozen=True)
class ChatFlags:
    """Who answers, and how. The command line of `agentgrpo chat`."""

    model: Annotated[
        str, typer.Option(help="run, model folder or hub name; with --base-url: its name or run (or OPENAI_MODEL)")
    ] = ""
    base_url: Annotated[str, typer.Option(envvar="OPENAI_BASE_URL", help='OpenAI-compatible address; "": none')] = ""
    api_key: Annotated[str, typer.Option(help="key of the address (or OPENAI_API_KEY)")] = ""
    recipe: Annotated[str, typer.Option(help="settings of a folder of recipes/ or a TOML file")] = ""
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="set any key")] = None
    agent: Annotated[str, typer.Option(help="one of [agents], for questions that name none")] = ""
    database: Annotated[Path | None, typer.Option(help="SQLite file (default: the bundled one)")] = None
    db_id: Annotated[str, typer.Option(help="of database.folder, for questions that name none")] = ""
    temperature: Annotated[float, typer.Option(min=0.0, max=2.0, help="0 is greedy")] = 0.0
    max_tokens: Annotated[int | None, typer.Option(min=1, help="longest answer of one model call")] = None


@dataclass(frozen=True)
class AskFlags(ChatFlags):
    """The command line of `agentgrpo ask`."""

    question: Annotated[list[str] | None, typer.Option(help="a question; may be given several times")] = None
    file: Annotated[Path | None, typer.Option(help="questions from a .parquet, .jsonl or .csv file")] = None
    limit: Annotated[int | None, typer.Option(min=1, help="ask only the first so many of the file")] = None
    json_: Annotated[bool, typer.Option("--json", help="one JSON object per question on stdout")] = False


@with_flags(AskFlags)
def ask(flags: AskFlags) -> int:
    """Ask the agent, and see its SQL, its answer and its reward.

    \b
    agentgrpo ask                                        the tiny policy or --model, served here with vLLM
    agentgrpo ask --question "阿莫西林的适应症是什么？"
    agentgrpo ask --base-url http://localhost:8000/v1    a running server
    agentgrpo ask --file data/val.parquet --limit 20 --json > answers.jsonl

    Without --question and --file three bundled questions are asked, chosen as such that the tiny policy can answer.
    Without address and --model the newest trained tiny policy of runs/ answers (`agentgrpo demo` leaves one), else the
    untrained one. Status 1: some questions ended in a fault (endpoint, database, judge).
    """
    config = composed(flags)
    questions = choose_questions(flags.question or [], flags.file, limit=flags.limit)
    defaults = {"agent": flags.agent, "db_id": flags.db_id}
    questions = [
        row.model_copy(update={key: getattr(row, key) or value for key, value in defaults.items()}) for row in questions
    ]
    outcomes = try_out(questions, answering(config, flags), config, as_lines=flags.json_)
    return int(any(outcome.failed for outcome in outcomes))


@with_flags(ChatFlags)
def talk(flags: ChatFlags) -> None:
    """Talk to the agent, and see each call that it makes; /help there.

    \b
    agentgrpo chat                                       the tiny policy
    agentgrpo chat --model my_model --recipe shop_agent  a model, with the tools that it was trained with
    agentgrpo chat --base-url http://localhost:8000/v1   a running server
    """
    talk_with(flags)


def talk_with(flags: ChatFlags) -> None:
    """The conversation. Raises UserError, LLMFault."""
    config = composed(flags)
    agent = agent_config(config, flags.agent)
    ensure_databases(agent)
    chat(agent, answering(config, flags), flags.db_id)


def composed(flags: ChatFlags) -> TrainConfig:
    """The configuration of a command line, and quiet logs. Raises UserError."""
    if flags.api_key and not flags.base_url:
        raise UserError("--api-key: is for the address of --base-url; name it, or leave the key out")
    log_warnings()
    # What it logs about a failed call is in the fault that it raises.
    logging.getLogger("openai.agents").setLevel(logging.CRITICAL)
    return resolve_config(
        flags.recipe, flags.set_ or [], database=flags.database, model=flags.model, endpoint=bool(flags.base_url)
    )


@contextmanager
def answering(config: TrainConfig, flags: ChatFlags) -> Iterator[LLMEndpoint]:
    """Whoever answers: a running server, or one for as long as the block lasts. Raises UserError, LLMFault."""
    if flags.base_url:
        step = served_checkpoint(flags.model)
        name = export_folder(step).name if step else flags.model or os.environ.get("OPENAI_MODEL", "")
        tokens = flags.max_tokens or config.rollout.max_response_tokens
        key = flags.api_key or os.environ.get("OPENAI_API_KEY", "")
        llm = checked_endpoint(
            flags.base_url, model=name, api_key=key, temperature=flags.temperature, max_tokens=tokens
        )
        yield replace(llm.sampled(config.rollout.evaluation), temperature=flags.temperature)
        return
    with own_server(config) as server:
        llm = server.endpoint(max_tokens=flags.max_tokens)
        yield replace(llm.sampled(config.rollout.evaluation), temperature=flags.temperature)
        if why := server.why_it_died():
            raise LLMFault(why)
