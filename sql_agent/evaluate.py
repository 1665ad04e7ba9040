"""Measure a model on held-out questions, or two against each other. `--help` says how."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from dotenv import load_dotenv
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from agl_plugin import run_folder
from sql_agent import preflight
from sql_agent.agent import LLMEndpoint
from sql_agent.config import (
    ROOT,
    TrainConfig,
    build_config,
    data_path,
    database_path,
    load_recipe,
    parse_assignment,
    resolve_system_prompt,
)
from sql_agent.database import Database
from sql_agent.dataset import fingerprint, load_questions
from sql_agent.endpoint import checked_endpoint
from sql_agent.errors import LLMFault, UserError
from sql_agent.evaluation import MEASURES, Decoding, Estimate, compare, draw, run_trials, summarize
from sql_agent.records import Question
from sql_agent.scorers import build_context, check_scorers
from sql_agent.serving import serve_model

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
notes = Console(stderr=True, highlight=False, soft_wrap=True)
EVALUATIONS = ROOT / "runs" / "evaluations"
SPLITS = ["test_entities", "test"]
Records = list[dict[str, Any]]
# (split, decoding) -> records
Results = dict[tuple[str, Decoding], Records]


@contextmanager
def served(target: str, config: TrainConfig) -> Iterator[LLMEndpoint]:
    """The endpoint of a model folder (served here for as long as the block lasts) or of an address NAME@http://..."""
    tokens = config.rollout.max_response_tokens
    if "://" in target:
        name, _, address = target.partition("@") if "@" in target.partition("://")[0] else ("", "", target)
        key = os.environ.get("OPENAI_API_KEY", "")
        yield checked_endpoint(address, model=name, api_key=key, temperature=0.0, max_tokens=tokens)
        return
    cpu = config.trainer.device == "cpu" or (config.trainer.device == "auto" and preflight.gpu_count() == 0)
    config = build_config(config.model_dump(), {"model": {"path": target}})
    folder = preflight.model_folder(config, tiny=not target)
    with notes.status(f"starting vLLM with {folder.name}"):
        server = serve_model(folder, config, cpu=cpu)
        running = server.__enter__()
    try:
        yield LLMEndpoint(running.base_url, running.model, temperature=0.0, max_tokens=tokens)
    finally:
        server.__exit__(None, None, None)


def evaluate(
    target: str, splits: dict[str, list[Question]], config: TrainConfig, *, samples: int, concurrency: int, label: str
) -> Results:
    """Play every split, sampled (`samples` per question at temperature 1) and greedily (once)."""
    scoring = build_context(config.reward)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    results: Results = {}
    with (
        served(target, config) as llm,
        Database(config.database, database_path(config.database)) as database,
        Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=notes) as bar,
    ):
        database.check()
        for split, questions in splits.items():
            check_scorers(questions, scoring)
            plans: list[tuple[Decoding, int, float]] = [("sampled", samples, 1.0), ("greedy", 1, 0.0)]
            for decoding, n, temperature in plans:
                task = bar.add_task(f"{label}, {split}, {decoding}", total=n * len(questions))
                results[split, decoding] = asyncio.run(
                    run_trials(
                        questions,
                        LLMEndpoint(llm.base_url, llm.model, llm.api_key, temperature, llm.max_tokens),
                        config=config,
                        database=database,
                        scoring=scoring,
                        samples=n,
                        concurrency=concurrency,
                        on_done=lambda _, task=task: bar.advance(task),
                    )
                )
    return results


def report(results: dict[str, Results], facts: dict[str, Any]) -> dict[str, Any]:
    """The tree of results.json: per model, split and decoding; and the paired differences, if there are two models."""
    tree: dict[str, Any] = {**facts, "models": {}, "delta": {}}
    for name, found in results.items():
        tree["models"][name] = {
            f"{split}/{decoding}": summarize(records) for (split, decoding), records in found.items()
        }
    if len(results) == 2:
        before, after = results.values()
        for split, decoding in before:
            key = (split, decoding)
            tree["delta"][f"{split}/{decoding}"] = {
                measure: vars(compare(before[key], after[key], measure)) for measure in MEASURES
            }
    return tree


def table(tree: dict[str, Any]) -> Table:
    """Rewards and tool use by split and decoding."""
    shown = Table(title="held out; mean over questions [95 % interval]", title_justify="left")
    for column in ("split", "decoding", "model", "reward", "answer score", "executed SQL", "unscored"):
        shown.add_column(column, overflow="fold")
    for key in next(iter(tree["models"].values())):
        split, decoding = key.split("/")
        for name, found in tree["models"].items():
            values = [str(Estimate(**found[key]["measures"][m])) for m in ("reward", "answer score", "executed SQL")]
            unscored = sum(found[key]["unscored"].values())
            shown.add_row(split, decoding, name, *values, f"{unscored} of {found[key]['trials']}")
        if key in tree["delta"]:
            values = [str(Estimate(**tree["delta"][key][m])) for m in ("reward", "answer score", "executed SQL")]
            shown.add_row("", "", "difference", *values, "", style="bold")
        shown.add_section()
    return shown


def markdown(tree: dict[str, Any]) -> str:
    """The same for a model card."""
    lines = ["| split | decoding | model | reward [95 %] | executed SQL |", "|---|---|---|---|---|"]
    for key in next(iter(tree["models"].values())):
        split, decoding = key.split("/")
        rows = [(name, found[key]["measures"]) for name, found in tree["models"].items()]
        rows += [("difference", tree["delta"][key])] if key in tree["delta"] else []
        lines += [
            f"| {split} | {decoding} | {name} | {Estimate(**m['reward'])} | {Estimate(**m['executed SQL'])} |"
            for name, m in rows
        ]
    return "\n".join(lines) + "\n"


def write(out: Path, results: dict[str, Results], tree: dict[str, Any]) -> None:
    """results.json, results.md, and every trial in trials.jsonl."""
    out.mkdir(parents=True, exist_ok=True)
    run_folder.write_json(out / "results.json", tree)
    (out / "results.md").write_text(markdown(tree), encoding="utf-8")
    trials = [
        {"model": name, "split": split, "decoding": decoding, **record}
        for name, found in results.items()
        for (split, decoding), records in found.items()
        for record in records
    ]
    run_folder.append_lines(out / "trials.jsonl", trials)


def load_splits(names: list[str], *, limit: int) -> dict[str, list[Question]]:
    """Questions by split name; a name is a bundled split or a question file."""
    files = {
        Path(name).stem: name if name.endswith((".parquet", ".jsonl")) else f"data/{name}.parquet" for name in names
    }
    return {stem: draw(load_questions(data_path(file)), limit) for stem, file in files.items()}


@app.command()
def main(
    before: Annotated[str, typer.Option(help="model folder, or NAME@http://host/v1; empty: the tiny policy")] = "",
    after: Annotated[str, typer.Option(help="a second model, compared with the first question by question")] = "",
    split: Annotated[list[str] | None, typer.Option(help="bundled split or question file; may be repeated")] = None,
    limit: Annotated[int, typer.Option(min=0, help="questions per split, drawn with a fixed seed; 0: all")] = 120,
    samples: Annotated[int, typer.Option(min=1, help="sampled episodes per question, temperature 1")] = 4,
    concurrency: Annotated[int, typer.Option(min=1, help="episodes in flight")] = 32,
    recipe: Annotated[str, typer.Option(help="settings of a folder of recipes/ or a TOML file")] = "",
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="set any key")] = None,
    out: Annotated[Path | None, typer.Option(help="folder of the results (default: runs/evaluations/TIME)")] = None,
) -> None:
    """Measure one model, or two against each other, on held-out questions: greedily and sampled.

    \b
    python evaluate.py                                        the tiny policy on test_entities and test
    python evaluate.py --before A --after B                   two model folders; paired differences with intervals
    python evaluate.py --before gpt@http://host:8000/v1       a running server (key: OPENAI_API_KEY)
    python evaluate.py --split my.parquet --limit 0 --samples 8

    Writes results.json, results.md and trials.jsonl; the last line is `evaluation: FOLDER`. Exit status: 0 all trials
    were scored, 1 some were not or a server failed, 2 wrong input.
    """
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("openai.agents").setLevel(logging.CRITICAL)
    try:
        tiny = not before and preflight.gpu_count() == 0
        base = load_recipe(recipe or "smoke_cpu") if recipe or tiny else {}
        config = build_config(base, *(parse_assignment(text) for text in set_ or []))
        config = resolve_system_prompt(config, tiny=tiny)
        splits = load_splits(split or SPLITS, limit=limit)
        targets = {"before": before, "after": after} if after else {"model": before}
        facts = {
            "targets": targets,
            "samples": samples,
            "questions": {name: len(questions) for name, questions in splits.items()},
            "judge": build_context(config.reward).judge_name,
            "database": fingerprint(database_path(config.database)),
        }
        results = {
            label: evaluate(target, splits, config, samples=samples, concurrency=concurrency, label=label)
            for label, target in targets.items()
        }
    except UserError as exc:
        notes.print(f"error: {exc}", markup=False)
        raise typer.Exit(2) from None
    except LLMFault as fault:
        notes.print(f"error: {fault}", markup=False)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        notes.print("interrupted")
        raise typer.Exit(130) from None
    tree = report(results, facts)
    folder = out or EVALUATIONS / datetime.now().strftime("%Y%m%d-%H%M%S")
    write(folder, results, tree)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    console.print(table(tree))
    console.print(f"evaluation: {folder}", soft_wrap=True, markup=False)
    raise typer.Exit(1 if any(r["reward"] is None for f in results.values() for v in f.values() for r in v) else 0)


if __name__ == "__main__":
    load_dotenv(ROOT / ".env")
    app()
