"""What each patch made for speed saves of a training step: calls a step, times what a call costs more without it.

  .venv/bin/python -m benchmarks.patches [--recipe demo_cpu] [--steps 4] [--out patches.json]

Trains with the recipe once. In each of its processes a patched function is now and then called both ways, with and
without the patch, on the arguments of the run (benchmarks/support/paired.py). Per patch:
calls    a step, counted
wall_ms  saved a call, the median over the pairs; cpu_ms the same by the CPU clock of the thread that calls
share    of a step: calls x cpu_ms / the median time of the run's steps after the warm-up
Runs of the same code differ by a tenth, so whole runs cannot tell a share of 3 %; pairs can. A share supposes that the
step waits for every call, so it is the most that a patch can bring. Not covered: patches that are there for
correctness; without_litellm and forked_engines, which work at the start (benchmarks/training.py).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from agl_plugin.patches.register import PATCHES
from benchmarks.support.paired import at_start
from benchmarks.training import COMMAND
from foundation import run_folder
from foundation.files import read_lines
from sql_agent.config import ROOT
from sql_agent.tiny_policy.build import ensure_tiny_policy

FOR_SPEED = tuple(patch.name for patch in PATCHES if patch.speed)
Figures = dict[str, dict[str, Any]]


def train(folder: Path, notes: Path, *, recipe: str, steps: int) -> list[float]:
    """One run of the recipe with pairs noted. The time of each of its steps, in seconds."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(at_start(notes, ROOT))
    keys = {"trainer.max_steps": steps, "trainer.runs_dir": folder / "runs"}
    flags = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    command = [recipe if word == "demo_cpu" else word for word in COMMAND]
    environment = {k: v for k, v in os.environ.items() if k not in ("AGL_MANAGED_STORE", "AGL_CURRENT_ROLE")}
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, *command, *flags],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        typer.echo(f"{(done.stdout + done.stderr)[-3000:]}\nerror: the run ended with {done.returncode}", err=True)
        raise typer.Exit(1)
    (metrics,) = folder.rglob(run_folder.METRICS)
    return [line["timing_s/step"] for line in read_lines(metrics) if "timing_s/step" in line]


def figures_of(notes: Path, *, steps: int, step_s: float) -> Figures:
    """The figures of each patch, from what the processes noted."""
    found: Figures = {}
    for name in FOR_SPEED:
        files = [json.loads(path.read_text()) for path in notes.glob(f"{name}-*.json")]
        calls = sum(file["calls"] for file in files) / steps
        pairs = [pair for file in files for pair in file["pairs"]]
        wall_ms, cpu_ms = (1000 * statistics.median(column) for column in zip(*pairs, strict=True)) if pairs else (0, 0)
        share = calls * cpu_ms / 1000 / step_s
        found[name] = {"calls": calls, "pairs": len(pairs), "wall_ms": wall_ms, "cpu_ms": cpu_ms, "share": share}
    return found


def show(figures: Figures) -> None:
    """The figures for people, the largest share first."""
    typer.echo(f"{'patch':24}{'calls':>8}{'pairs':>7}{'wall_ms':>10}{'cpu_ms':>10}{'share':>8}")
    for name, one in sorted(figures.items(), key=lambda item: -item[1]["share"]):
        numbers = f"{one['calls']:8.0f}{one['pairs']:7}{one['wall_ms']:10.3f}{one['cpu_ms']:10.3f}"
        share = f"{one['share']:.1%}" if one["pairs"] else "-"
        typer.echo(f"{name:24}{numbers}{share:>8}")


def main(
    recipe: Annotated[str, typer.Option(help="what to train")] = "demo_cpu",
    steps: Annotated[int, typer.Option(min=1, help="steps whose time counts")] = 4,
    warm_up: Annotated[int, typer.Option(min=0, help="steps before them")] = 1,
    out: Annotated[Path | None, typer.Option(help="write the figures there as JSON")] = None,
) -> None:
    """Measure what patches made for speed save; about two minutes on two idle cores."""
    ensure_tiny_policy(1)
    with tempfile.TemporaryDirectory() as temp:
        (notes := Path(temp) / "notes").mkdir()
        times_s = train(Path(temp), notes, recipe=recipe, steps=steps + warm_up)
        step_s = statistics.median(times_s[warm_up:])
        figures = figures_of(notes, steps=len(times_s), step_s=step_s)
    load = round(os.getloadavg()[0], 2)
    if out:
        facts = {"recipe": recipe, "step_s": step_s, "cores": os.cpu_count(), "load": load, "patches": figures}
        out.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    typer.echo(f"{recipe}: a step takes {step_s:.2f} s; load {load} on {os.cpu_count()} cores")
    show(figures)


if __name__ == "__main__":
    typer.run(main)
