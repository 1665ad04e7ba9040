"""`agentgrpo mine`: your own database to a better agent, in one command.

Guarantees: every stage is complete in the output folder or not at all, and a command that was killed goes on where it
was; training and measuring are the commands that a person would use, in processes of their own.
"""

from __future__ import annotations

import fcntl
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from foundation import run_folder
from foundation.console import Heartbeat
from foundation.errors import UserError
from foundation.files import read_object
from foundation.gpus import gpu_count
from reward_client import needed_endpoints
from sql_agent.commands import demo
from sql_agent.commands.demo import RUN_LINE
from sql_agent.config import COMMAND, HOME
from sql_agent.errors import DatabaseFault
from sql_agent.mining.phrasing import phrased
from sql_agent.mining.questions import SIZES, Mined, mine_questions
from sql_agent.mining.recipe import ABOUT_SPLITS, told_drops, write_recipe
from sql_agent.mining.schema import Schema, config_of, read_schema
from sql_agent.mining.state import DUCKDB, PHRASED, RUNS, Settled, State, begin, begin_training, forget, name_of, save
from sql_agent.run_report.file import report_line
from sql_agent.serving.models import GPU_MODEL

HELD_OUT = ("test", "test_wordings", "test_tables")
LEAST_QUESTIONS = {"train": 24, "val": 4, "test": 8}
TINY = (
    "no GPU and no --model: a tiny policy is made for these tables. It knows their names and the wordings of the "
    "questions,\nand no language beyond; its teacher errs on purpose, and training corrects that"
)
console = Console(highlight=False, soft_wrap=True)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Nobody else works in the folder meanwhile. Raises UserError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"--out {folder}: another `agentgrpo mine` works there; wait for it") from None
        yield


def settle(database: str, *, model: str, phrase: bool = False, **options: Any) -> Settled:
    """What is asked for; `asked` are the other fields of Settled. Raises UserError where there is no such file."""
    size, changed_ns = 0, 0
    if "://" not in database or config_of(database).dialect == "duckdb":
        path = Path(database.removeprefix(DUCKDB)).expanduser()
        if not path.is_file():
            what = "a folder" if path.is_dir() else "no such file"
            raise UserError(f"DATABASE {database}: {what}; name a SQLite file, or a URL as database.url takes it")
        size, changed_ns = path.stat().st_size, path.stat().st_mtime_ns
    model = model or (GPU_MODEL if gpu_count() else "")
    if phrase and not model:
        raise UserError("--phrase: the tiny policy reads nothing but the wordings it is shown; name a --model too")
    return Settled(database=database, size=size, changed_ns=changed_ns, model=model, phrase=phrase, **options)


def command_of(settled: Settled, folder: Path) -> list[str]:
    """What makes and continues this folder."""
    words = ["agentgrpo", "mine", settled.database, "--out", str(folder), "--language", settled.language]
    words += ["--seed", str(settled.seed), "--questions", str(settled.questions)]
    words += [word for table in settled.tables for word in ("--table", table)]
    words += ["--model", settled.model] if settled.model else []
    return words + (["--phrase"] if settled.phrase else [])


def write_questions(folder: Path, state: State) -> None:
    """The first stage: schema, questions, recipe. Raises UserError."""
    settled, database = state.settled, state.settled.database
    endpoints = needed_endpoints("phrasing model") if settled.phrase else []
    try:
        with Heartbeat(console, lambda: "reading the database and asking it"):
            schema = read_schema(database, tables=settled.tables, language=settled.language)
            sizes = {**SIZES, "train": settled.questions}
            mined = mine_questions(schema, database, language=settled.language, seed=settled.seed, sizes=sizes)
        if endpoints:
            with Heartbeat(console, lambda: "asking for words"):
                mined = phrased(mined, schema, settled, endpoints[0], file=folder / PHRASED)
    except DatabaseFault as exc:
        raise UserError(str(exc)) from exc
    for split, least in LEAST_QUESTIONS.items():
        if len(mined.splits[split]) < least:
            most = max(table.n_rows for table in schema.tables)
            raise UserError(
                f"database {database}: {len(mined.splits[split])} questions for {split}, at least {least} are needed; "
                f"dropped: {told_drops(mined.dropped)}. A table needs a unique column or primary key, another one of "
                f"values, and rows enough to hold some out; the largest here has {most}"
            )
    write_recipe(folder, schema, mined, settled, gpu=bool(gpu_count()))
    state.questions = True
    save(folder, state)
    tell(schema, mined)


def tell(schema: Schema, mined: Mined) -> None:
    """What was found and made."""
    views = sum(table.is_view for table in schema.tables)
    console.print(f"{len(schema.tables)} tables, {views} of them views, {len(schema.links)} foreign keys", markup=False)
    for name, questions in mined.splits.items():
        console.print(f"  {name:14}{len(questions):5}  {ABOUT_SPLITS[name]}", markup=False)
    console.print(f"  dropped: {told_drops(mined.dropped)}", markup=False)
    if mined.phrased:
        console.print(f"  {mined.phrased}", markup=False)


def train(folder: Path, state: State) -> Path:
    """Train, or go on from the newest checkpoint; the run folder."""
    runs = folder / RUNS
    keys = [f"trainer.runs_dir={runs}", f"trainer.seed={state.settled.seed}"]
    if steps := state.amounts["steps"]:
        keys.append(f"trainer.max_steps={steps}")
    flags = ["--recipe", str(folder), *(word for key in keys for word in ("--set", key))]
    flags += [] if gpu_count() else ["--backend", "local"]
    done = sorted(runs.glob(f"*/{run_folder.CHECKPOINTS}/global_step_*"), key=lambda path: path.stat().st_mtime)
    flags += ["--resume", str(done[-1].parents[1])] if done else []
    return Path(demo.run(*COMMAND, "train", *flags).removeprefix(RUN_LINE))


def measure(folder: Path, state: State) -> None:
    """Both models on what was held out, and the trained one as a model folder; the run's summary gets the figures."""
    summary = read_object(Path(state.run) / run_folder.SUMMARY)
    files = [file for file in (folder / f"{name}.jsonl" for name in HELD_OUT) if file.stat().st_size]
    plan = ["--limit", str(state.amounts["test_questions"]), "--samples", str(state.amounts["samples"])]
    plan += ["--recipe", str(folder), *(word for file in files for word in ("--split", str(file)))]
    demo.conclude(Path(state.run), before=summary["model"]["path"], plan=plan)
    state.evaluated = True
    save(folder, state)


def conclude(folder: Path, state: State) -> None:
    """The figures, the report, and what to do with the agent."""
    summary = read_object(Path(state.run) / run_folder.SUMMARY)
    for key, before in summary["before"].items():
        low, high = summary["delta_ci95"][key]
        figures = f"{before:.3f} -> {summary['after'][key]:.3f}  {summary['delta'][key]:+.3f} [{low:+.3f}, {high:+.3f}]"
        console.print(f"{key:28}{figures}", markup=False)
    console.print(report_line(Path(state.run)), markup=False)
    talk = ["agentgrpo", "chat", "--recipe", str(folder), "--model", str(Path(state.run) / "model")]
    console.print(f"talk to it: {shlex.join(talk)}", markup=False)
    console.print(f"{RUN_LINE}{state.run}", markup=False)


def mine(
    database: Annotated[
        str, typer.Argument(help="SQLite file; or duckdb:///FILE, postgresql://USER@HOST/NAME, mysql://, mariadb://")
    ],
    out: Annotated[Path | None, typer.Option(help="folder of the recipe (default: mined/NAME); goes on there")] = None,
    language: Annotated[Literal["en", "zh"], typer.Option(help="of the questions")] = "en",
    table: Annotated[list[str] | None, typer.Option(help="table or view to ask about (default: all); repeat")] = None,
    model: Annotated[str, typer.Option(help="model folder or hub name (default: a tiny policy)")] = "",
    phrase: Annotated[
        bool, typer.Option("--phrase", help="have the questions said by TEACHER_MODEL; needs a language model to train")
    ] = False,
    questions: Annotated[int, typer.Option(min=24, help="most training questions")] = SIZES["train"],
    seed: Annotated[int, typer.Option(help="of questions, splits, tiny policy and training")] = 1,
    steps: Annotated[int | None, typer.Option(min=1, help="training steps (default: the recipe's)")] = None,
    test_questions: Annotated[
        int | None,
        typer.Option(min=1, help="held-out questions that are measured, of those mined per split (default: 120)"),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="sampled answers to each of them, beside the greedy one (default: 1)")
    ] = None,
    train_: Annotated[bool, typer.Option("--train/--no-train", help="train and measure, or stop at the recipe")] = True,
) -> None:
    """Make an agent for your own database: write questions with reference SQL, train, and measure on what was held out.

    \b
    agentgrpo mine shop.db                           a tiny policy, on two cores
    agentgrpo mine shop.db --model Qwen/Qwen3-0.6B   a language model, on a GPU
    agentgrpo mine shop.db --model M --phrase        its questions said by TEACHER_MODEL, and checked
    agentgrpo mine shop.db --language zh --no-train  questions and recipe alone
    agentgrpo mine postgresql://reader@db/shop       a server; DATABASE_PASSWORD holds the password

    The database is read and never written. A command that was killed goes on when it is given again. The last line is
    `run: FOLDER`, with --no-train `recipe: FOLDER`.
    """
    amounts = {"steps": steps, "test_questions": test_questions, "samples": samples}
    if not train_ and (set_ := [name for name, value in amounts.items() if value is not None]):
        raise UserError(f"--{set_[0].replace('_', '-')}: is read when it trains; leave it or --no-train out")
    folder = (out or HOME / "mined" / name_of(database)).expanduser().absolute()
    settings = {"seed": seed, "questions": questions, "tables": table or [], "model": model, "phrase": phrase}
    settled = settle(database, language=language, **settings)
    with alone(folder):
        state = begin(folder, settled)
        if not state.questions:
            try:
                write_questions(folder, state)
            except UserError:
                forget(folder)
                raise
        if not train_:
            console.print(f"train: {shlex.join(command_of(settled, folder))}", markup=False)
            console.print(f"recipe: {folder}", markup=False)
            return
        begin_training(folder, state, amounts)
        if not settled.model:
            console.print(TINY, markup=False)
        if not state.run:
            state.run = str(train(folder, state))
            save(folder, state)
        if not state.evaluated:
            measure(folder, state)
        conclude(folder, state)
