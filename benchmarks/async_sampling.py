"""Steps a minute and reward where a tool has a heavy tail, with steps that wait for all and with rollout.async_groups.

  .venv/bin/python benchmarks/async_sampling.py [--seeds 3] [--steps 24] [--ahead 8]

Trains the tiny policy (4 questions x 4 rollouts a step) with benchmarks/support/slow_tool.py: a tool call takes 0.2 s,
one of twenty 10 s. Per data.seed a run of each kind, from the same policy; without the first steps:
steps_per_minute   from the end of the first measured step's predecessor to the end of the last step
reward             mean of the held-out questions after the last step, greedy
staleness_mean     of asynchronous steps
`verify` of each run's audit must find nothing. Wall-clock times: run it on an idle machine.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from agl_plugin.audit.verify import verify
from benchmarks.training import trained
from foundation import run_folder
from foundation.files import read_lines
from sql_agent.config import ROOT
from sql_agent.tiny_policy.build import ensure_tiny_policy

WARM_UP = 2
KEYS = {
    "optim.questions_per_step": 4,
    "optim.mini_batch_questions": 4,
    "optim.micro_batch_rows": 4,
    "optim.importance_correction": "truncated",
    "rollout.group_size": 4,
    "trainer.validate_first": "false",
    "trainer.save_every": -1,
    "agent.episode": f"{ROOT}/benchmarks/support/slow_tool.py:play",
}


def measured(folder: Path, *, seed: int, steps: int, ahead: int) -> dict[str, Any]:
    """The figures of one run below `folder`; `ahead` of 0 is synchronous."""
    keys = {"trainer.max_steps": steps, "trainer.validate_every": steps, "trainer.runs_dir": folder, "data.seed": seed}
    if ahead:
        keys |= {"rollout.async_groups": ahead, "rollout.max_staleness": 8}
    run = trained(KEYS | keys, folder)
    lines = read_lines(run / run_folder.METRICS)
    steps_done = [line for line in lines if line["kind"] == "train"][WARM_UP:]
    return {
        "seed": seed,
        "async_groups": ahead,
        "steps_per_minute": round(60 * len(steps_done) / sum(line["seconds"] for line in steps_done), 2),
        "reward": round(next(line["val/reward_mean"] for line in lines if line["kind"] == "val"), 3),
        "staleness_mean": statistics.fmean(line.get("rollout/staleness_mean", 0) for line in steps_done),
        "audit_problems": verify(run).problems[:3],
    }


def main(
    seeds: Annotated[int, typer.Option(min=1)] = 3,
    steps: Annotated[int, typer.Option(min=WARM_UP + 1)] = 24,
    ahead: Annotated[int, typer.Option(min=1, help="rollout.async_groups of the asynchronous runs")] = 8,
) -> None:
    """Measure both; some three minutes a run of 24 steps on two idle cores."""
    ensure_tiny_policy(1)
    rates: dict[int, list[float]] = {0: [], ahead: []}
    rewards: dict[int, list[float]] = {0: [], ahead: []}
    for seed, groups in itertools.product(range(1, seeds + 1), rates):
        with tempfile.TemporaryDirectory() as temp:
            figures = measured(Path(temp), seed=seed, steps=steps, ahead=groups)
        typer.echo(json.dumps(figures))
        rates[groups].append(figures["steps_per_minute"])
        rewards[groups].append(figures["reward"])
    ratio = statistics.fmean(rates[ahead]) / statistics.fmean(rates[0])
    typer.echo(f"steps a minute, asynchronous over synchronous: {ratio:.2f}; rewards {rewards[0]} and {rewards[ahead]}")


if __name__ == "__main__":
    typer.run(main)
