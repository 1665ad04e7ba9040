"""Training steps: where the time goes, start-up, memory.

  .venv/bin/python benchmarks/training.py [--out training.json] [--steps 2]

Trains the tiny policy with the recipe demo_cpu (12 questions x 8 rollouts). Without the warm-up steps:
step_s     seconds of a step; rollouts_s, old_log_prob_s, update_s and other_s are its parts (verl's own timers)
tokens     of the batch, padding left out
startup_s  from the command to the first LLM call of a rollout, with a tiny policy that is built already
peak_gib   memory of the command and all its children, shared pages counted once, sampled every ten seconds
total_s    the whole command
`phases_s` is the finer split that the run writes. Wall-clock times: run it on an idle machine.
"""

from __future__ import annotations

import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from agl_plugin.run.time_split import PHASES
from foundation import run_folder
from foundation.files import read_lines, read_object, write_json
from sql_agent.config import ROOT
from sql_agent.tiny_policy.build import ensure_tiny_policy

COMMAND = ["-m", "sql_agent.train_sql_agent", "--recipe", "demo_cpu"]
PARTS = {"rollouts_s": "timing_s/gen", "old_log_prob_s": "timing_s/old_log_prob", "update_s": "timing_s/update_actor"}
TOKENS = "perf/total_num_tokens"


def figures_of(run: Path, *, started_s: float, warm_up: int) -> dict[str, Any]:
    """The figures of a run from its folder; `started_s` is when its command was started, since the epoch."""
    lines = [line for line in read_lines(run / run_folder.METRICS) if "timing_s/step" in line][warm_up:]
    rollouts = read_lines(run / run_folder.ROLLOUTS)
    rewards = [row["reward"] for row in rollouts if row.get("reward") is not None]
    step_s = statistics.fmean(line["timing_s/step"] for line in lines)
    parts = {name: statistics.fmean(line[timer] for line in lines) for name, timer in PARTS.items()}
    first_call_s = min(start for row in rollouts for _, start, _ in row.get("timeline", []))
    phases = [name for name in PHASES if f"time/{name}" in lines[0]]
    return {
        "step_s": round(step_s, 2),
        **{name: round(value, 2) for name, value in parts.items()},
        "other_s": round(step_s - sum(parts.values()), 2),
        "tokens": round(statistics.fmean(line[TOKENS] for line in lines)),
        "startup_s": round(first_call_s - started_s, 1),
        "peak_gib": read_object(run / run_folder.SUMMARY)["peak_memory_gib"],
        "step_s_each": [round(line["timing_s/step"], 2) for line in lines],
        "rollouts": len(rollouts),
        "scored": len(rewards),
        "reward_mean": round(statistics.fmean(rewards), 3),
        "phases_s": {name: round(statistics.fmean(line[f"time/{name}"] for line in lines), 2) for name in phases},
    }


def trained(keys: Mapping[str, Any], folder: Path) -> Path:
    """Train demo_cpu with these keys; the run folder below `folder`. Where it fails, its last words, and status 1."""
    environment = {k: v for k, v in os.environ.items() if k not in ("AGL_MANAGED_STORE", "AGL_CURRENT_ROLE")}
    command = [*COMMAND, *(word for key, value in keys.items() for word in ("--set", f"{key}={value}"))]
    log = folder / "log"
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, stdout=output, stderr=output)
    if done.returncode:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-30:])
        typer.echo(f"{tail}\nerror: `{shlex.join(command)}` ended with status {done.returncode}", err=True)
        raise typer.Exit(1)
    (run,) = [path.parent for path in folder.rglob(run_folder.SUMMARY)]
    return run


def main(
    out: Annotated[Path | None, typer.Option(help="write the figures there as JSON")] = None,
    steps: Annotated[int, typer.Option(min=1, help="measured steps")] = 2,
    warm_up: Annotated[int, typer.Option(min=0, help="steps before them")] = 1,
) -> None:
    """Measure training; two minutes on two idle cores."""
    ensure_tiny_policy(1)
    with tempfile.TemporaryDirectory() as temp:
        keys = {"trainer.max_steps": steps + warm_up, "trainer.runs_dir": temp, "trainer.validate_first": "false"}
        keys |= {"trainer.validate_every": -1, "trainer.save_every": -1}
        started_s = time.time()
        run = trained(keys, Path(temp))
        total_s = time.time() - started_s
        figures = {"steps": steps, "warm_up": warm_up, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}
        figures |= figures_of(run, started_s=started_s, warm_up=warm_up) | {"total_s": round(total_s, 1)}
    if out:
        write_json(out, figures)
    table = Table("", "", title="per training step, and per run", title_justify="left", show_header=False)
    for name in ("step_s", *PARTS, "other_s", "tokens", "startup_s", "peak_gib", "total_s"):
        table.add_row(name, str(figures[name]))
    Console().print(table)
    phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in figures["phases_s"].items() if seconds)
    typer.echo(f"seconds of a step by phase: {phases}")


if __name__ == "__main__":
    typer.run(main)
