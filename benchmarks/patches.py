"""What each patch made for speed brings: training with one left out, between runs that have them all.

  .venv/bin/python -m benchmarks.patches [--patch NAME ...] [--steps 5] [--rounds 1] [--out patches.json]

Trains the tiny policy with the recipe demo_cpu, a run per patch and round (AGENTGRPO_WITHOUT_PATCHES), each between two
runs without a change. Per run: `step_s`, the median time of its steps after the warm-up, and `cpu_s`, the CPU seconds
that the command and its children took, start-up included. A patch's ratio is its runs' figure over that of the runs
before and after them: 1.03 means that a step takes 3 % longer without the patch. Starting takes about 100 s of each
run. Patches without an effect on a step, and such as the recipe does not use, show 1.00 give or take the noise, which
the ratio between neighbouring runs without a change shows (`noise`). Wall-clock times: run it on an idle machine.
Not covered: patches that are there for correctness, which cannot be left out.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from agl_plugin.patches.install import WITHOUT
from agl_plugin.patches.register import PATCHES
from benchmarks.training import OURS
from foundation import run_folder
from foundation.files import read_lines
from sql_agent.config import ROOT
from sql_agent.tiny_policy.build import ensure_tiny_policy

FOR_SPEED = tuple(patch.name for patch in PATCHES if patch.speed)
FIGURES = ("step_s", "cpu_s")
Figures = dict[str, float]


def cpu_of_children_s() -> float:
    """CPU seconds of the commands that have ended, with what they waited for themselves."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def train(without: str, folder: Path, *, steps: int, warm_up: int) -> Figures:
    """One run of the recipe without one patch ("": with all). Its figures."""
    keys = {"trainer.max_steps": steps + warm_up, "trainer.runs_dir": folder}
    flags = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    environment = {k: v for k, v in os.environ.items() if k not in ("AGL_MANAGED_STORE", "AGL_CURRENT_ROLE")}
    before_s = cpu_of_children_s()
    done = subprocess.run(
        [sys.executable, *OURS, *flags], cwd=ROOT, env={**environment, WITHOUT: without}, capture_output=True, text=True
    )
    if done.returncode:
        typer.echo(f"{(done.stdout + done.stderr)[-3000:]}\nerror: {WITHOUT}={without} ended with {done.returncode}")
        raise typer.Exit(1)
    (metrics,) = folder.rglob(run_folder.METRICS)
    step_s = [line["timing_s/step"] for line in read_lines(metrics) if "timing_s/step" in line][warm_up:]
    return {"step_s": statistics.median(step_s), "cpu_s": cpu_of_children_s() - before_s}


def compared(runs: list[tuple[str, Figures]]) -> dict[str, dict[str, float]]:
    """Patch -> figure -> ratio to the runs before and after it, the median over rounds. Every second run has all."""
    ratios: dict[str, dict[str, list[float]]] = {}
    for place in range(1, len(runs), 2):
        (_, before), (name, run), (_, after) = runs[place - 1 : place + 2]
        for figure in FIGURES:
            found = 2 * run[figure] / (before[figure] + after[figure])
            ratios.setdefault(name, {}).setdefault(figure, []).append(found)
    return {
        name: {figure: round(statistics.median(values), 3) for figure, values in each.items()}
        for name, each in ratios.items()
    }


def noise_of(runs: list[tuple[str, Figures]]) -> dict[str, float]:
    """Figure -> the largest ratio between neighbouring runs with all patches."""
    same = [figures for name, figures in runs if not name]
    pairs = list(zip(same, same[1:], strict=False))
    return {
        figure: round(max(max(a[figure], b[figure]) / min(a[figure], b[figure]) for a, b in pairs), 3)
        for figure in FIGURES
    }


def table_of(ratios: dict[str, dict[str, float]], noise: dict[str, float]) -> Table:
    """The figures for people."""
    table = Table("left out", *FIGURES, title="without / with, per patch", title_justify="left")
    for name, found in [*sorted(ratios.items(), key=lambda one: -one[1]["step_s"]), ("(noise)", noise)]:
        table.add_row(name, *(f"{found[figure]:.3f}" for figure in FIGURES))
    return table


def main(
    patch: Annotated[list[str] | None, typer.Option(help="a patch to leave out (default: all made for speed)")] = None,
    steps: Annotated[int, typer.Option(min=1, help="measured steps of each run")] = 5,
    warm_up: Annotated[int, typer.Option(min=0, help="steps before them")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="runs of each patch")] = 1,
    out: Annotated[Path | None, typer.Option(help="write the figures there as JSON")] = None,
) -> None:
    """Measure what patches made for speed bring; about five minutes for a patch and round on two idle cores."""
    names = patch or list(FOR_SPEED)
    if strangers := set(names) - set(FOR_SPEED):
        typer.echo(f"error: --patch {', '.join(sorted(strangers))}: must be of {', '.join(FOR_SPEED)}", err=True)
        raise typer.Exit(2)
    ensure_tiny_policy(1)
    order = ["", *(word for _ in range(rounds) for name in names for word in (name, ""))]
    runs: list[tuple[str, Figures]] = []
    with tempfile.TemporaryDirectory() as temp:
        for number, without in enumerate(order):
            runs.append((without, train(without, Path(temp) / str(number), steps=steps, warm_up=warm_up)))
            figures = ", ".join(f"{name} {value:.1f}" for name, value in runs[-1][1].items())
            typer.echo(f"{number + 1}/{len(order)} {'without ' + without if without else 'with all'}: {figures}")
    ratios, noise = compared(runs), noise_of(runs)
    if out:
        facts = {"steps": steps, "warm_up": warm_up, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}
        text = json.dumps({**facts, "runs": runs, "ratios": ratios, "noise": noise}, indent=2)
        out.write_text(text + "\n", encoding="utf-8")
    Console().print(table_of(ratios, noise))


if __name__ == "__main__":
    typer.run(main)
