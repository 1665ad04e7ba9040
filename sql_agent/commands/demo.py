"""`agentgrpo demo`: train a recipe's tiny policy, evaluate it before and after, export, report.

Guarantees: every part is the command that a person would use, in a process of its own; the last line is `run: FOLDER`;
summary.json there gets before, after, delta and delta_ci95 (rewards) per split and decoding.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from foundation import run_folder
from foundation.files import read_object, write_json
from foundation.processes import end_with_parent
from sql_agent.config import COMMAND, ROOT, build_config, load_recipe, recipe_path, resolve_system_prompt
from sql_agent.evaluation.folder import PLAN, RESULTS, TABLES
from sql_agent.evaluation.plan import SPLITS
from sql_agent.evaluation.results import EvalReport
from sql_agent.run_report.file import report_line
from sql_agent.serving.models import model_folder

RUN_LINE, EVALUATION = "run: ", "evaluation"


def run(*command: str) -> str:
    """Run one part, showing what it prints; returns its last line. A part that fails ends the demo with its status.

    An interrupted part is waited for: Ctrl-C reaches it by itself, a SIGTERM is passed on.
    """
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, preexec_fn=end_with_parent)
    assert process.stdout is not None
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    last = ""
    for line in process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        last = line.strip() or last
    if status := process.wait():
        raise typer.Exit(128 - status if status < 0 else status)
    return last


def rewards(results: EvalReport) -> dict[str, Any]:
    """before, after, delta and delta_ci95 per "split/decoding"."""
    before, after = results.sides
    delta = {key: figures["reward"] for key, figures in results.delta.items()}
    return {
        "before": {key: figures.measures["reward"].mean for key, figures in before.items()},
        "after": {key: figures.measures["reward"].mean for key, figures in after.items()},
        "delta": {key: figures.mean for key, figures in delta.items()},
        "delta_ci95": {key: [figures.low, figures.high] for key, figures in delta.items()},
    }


def conclude(run_dir: Path, *, before: str, plan: list[str]) -> None:
    """Measure a run's model before and after, unless that is done; export it; write the figures into its summary."""
    evaluation = run_dir / EVALUATION
    targets = ["--before", before, "--after", str(run_dir), *plan, "--out", str(evaluation)]
    resume = ["--resume", str(evaluation)]
    try:
        run(*COMMAND, "evaluate", *(resume if (evaluation / PLAN).is_file() else targets))
    except typer.Exit as end:
        if end.exit_code != 1 or not (evaluation / RESULTS).is_file():
            raise
        run(*COMMAND, "evaluate", *resume)  # some were left unscored, by faults of a moment
    if not (model := run_dir / "model").exists():
        run(*COMMAND, "export", str(run_dir), str(model), "--evaluation", str(evaluation / TABLES))
    summary = read_object(run_dir / run_folder.SUMMARY)
    write_json(run_dir / run_folder.SUMMARY, {**summary, **rewards(EvalReport.read(evaluation / RESULTS))})


def held_out(recipe: str) -> list[Path]:
    """The recipe's own questions to measure with; none where it trains on the bundled ones, whose splits are known."""
    files = [recipe_path(recipe).parent / f"{name}.jsonl" for name in SPLITS]
    return [file for file in files if file.is_file()]


def demo(
    seed: Annotated[int, typer.Option(help="seed of training")] = 1,
    recipe: Annotated[str, typer.Option(help="recipe with a tiny policy")] = "demo_cpu",
    steps: Annotated[int, typer.Option(min=0, help="training steps; 0: the recipe's")] = 0,
    questions: Annotated[int, typer.Option(min=0, help="held-out questions per split; 0: all")] = 80,
) -> None:
    """Train a recipe's tiny policy on this machine, and measure it before and after, on held-out questions.

    \b
    agentgrpo demo --seed 1                         the SQL agent
    agentgrpo demo --seed 1 --recipe math_cpu       the math agent

    The last line is `run: FOLDER`; its report shows both.
    """
    config = resolve_system_prompt(build_config(load_recipe(recipe)), tiny=True)
    settings = ["--set", f"trainer.seed={seed}", *(["--set", f"trainer.max_steps={steps}"] if steps else [])]
    last = run(*COMMAND, "train", "--recipe", recipe, *settings)
    folder = Path(last.removeprefix(RUN_LINE))
    plan = ["--limit", str(questions), "--recipe", recipe, "--set", f"agent.system_prompt={config.agent.system_prompt}"]
    plan += [flag for file in held_out(recipe) for flag in ("--split", str(file))]
    conclude(folder, before=str(model_folder(config.model, tiny=True)), plan=plan)
    print(report_line(folder))
    print(f"{RUN_LINE}{folder}")
