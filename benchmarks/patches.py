"""What each patch made for speed brings: training with one left out, between runs that have them all.

  .venv/bin/python -m benchmarks.patches [--patch NAME ...] [--steps 5] [--rounds 1] [--out patches.json]

Trains the tiny policy with the recipe demo_cpu, a run per patch and round (AGENTGRPO_WITHOUT_PATCHES), each between two
runs without a change. A run's figure is the median time of its steps after the warm-up, in seconds. A patch's ratio is
its runs' figure over that of the runs before and after them: 1.03 means that a step takes 3 % longer without the patch.
Starting takes about 80 s of each run. Patches without an effect on a step, and such as the recipe does not use, show
1.00 give or take the noise, which the ratio between neighbouring runs without a change shows (`noise`). Wall-clock
times: run it on an idle machine.
Not covered: patches that are there for correctness, which cannot be left out.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from agl_plugin.patches.install import WITHOUT
from agl_plugin.patches.register import PATCHES
from benchmarks.training import OURS
from foundation import run_folder
from foundation.files import read_lines
from sql_agent.config import ROOT
from sql_agent.tiny_policy.build import ensure_tiny_policy

FOR_SPEED = tuple(patch.name for patch in PATCHES if patch.speed)


def train(without: str, folder: Path, *, steps: int, warm_up: int) -> float:
    """One run of the recipe without one patch ("": with all). Its median step, in seconds."""
    keys = {"trainer.max_steps": steps + warm_up, "trainer.runs_dir": folder}
    flags = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    environment = {k: v for k, v in os.environ.items() if k not in ("AGL_MANAGED_STORE", "AGL_CURRENT_ROLE")}
    done = subprocess.run(
        [sys.executable, *OURS, *flags], cwd=ROOT, env={**environment, WITHOUT: without}, capture_output=True, text=True
    )
    if done.returncode:
        typer.echo(f"{(done.stdout + done.stderr)[-3000:]}\nerror: {WITHOUT}={without} ended with {done.returncode}")
        raise typer.Exit(1)
    (metrics,) = folder.rglob(run_folder.METRICS)
    return statistics.median(
        [line["timing_s/step"] for line in read_lines(metrics) if "timing_s/step" in line][warm_up:]
    )


def compared(runs: list[tuple[str, float]]) -> dict[str, float]:
    """Patch -> ratio to the runs before and after it, the median over rounds. Every second run has all."""
    ratios: dict[str, list[float]] = {}
    for place in range(1, len(runs), 2):
        (_, before_s), (name, step_s), (_, after_s) = runs[place - 1 : place + 2]
        ratios.setdefault(name, []).append(2 * step_s / (before_s + after_s))
    return {name: round(statistics.median(found), 3) for name, found in ratios.items()}


def noise_of(runs: list[tuple[str, float]]) -> float:
    """The largest ratio between neighbouring runs with all patches."""
    same = [step_s for name, step_s in runs if not name]
    return round(max(max(pair) / min(pair) for pair in zip(same, same[1:], strict=False)), 3)


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
    runs: list[tuple[str, float]] = []
    with tempfile.TemporaryDirectory() as temp:
        for number, without in enumerate(order):
            runs.append((without, train(without, Path(temp) / str(number), steps=steps, warm_up=warm_up)))
            typer.echo(
                f"{number + 1}/{len(order)} {f'without {without}' if without else 'with all'}: {runs[-1][1]:.2f} s"
            )
    ratios, noise = compared(runs), noise_of(runs)
    if out:
        facts = {"steps": steps, "warm_up": warm_up, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}
        text = json.dumps({**facts, "runs": runs, "ratios": ratios, "noise": noise}, indent=2)
        out.write_text(text + "\n", encoding="utf-8")
    for name, ratio in [*sorted(ratios.items(), key=lambda found: -found[1]), ("(noise)", noise)]:
        typer.echo(f"{name:24}{ratio:.3f}")


if __name__ == "__main__":
    typer.run(main)
