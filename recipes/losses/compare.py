"""Train the tiny policy once with each loss, and tabulate what came of it.

    python -m recipes.losses.compare                                   every loss, one after the other
    python -m recipes.losses.compare gspo minirl --set trainer.max_steps=12
    python -m recipes.losses.compare --runs runs/A runs/B              the table alone, from run folders

Guarantees: seed, questions and steps are the same for all; figures come from the run folders alone, and the first is
what the others are compared with. Intervals are bootstraps over validation questions; they say nothing of other seeds.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer

from foundation.stats import difference, estimate
from sql_agent.commands.demo import RUN_LINE
from sql_agent.commands.demo import run as run_command
from sql_agent.config import COMMAND
from sql_agent.config.losses import PRESETS
from sql_agent.run_report.folder import RunData, read_run

HEAD = (
    "| loss | steps | before | after | difference [95 %] | against the first [95 %] | last training rewards | clipped "
    "| gradient norm |"
)
LAST_STEPS = 5


def trained(loss: str, settings: list[str]) -> Path:
    """The run folder of a run with this loss."""
    keys = [f"optim.loss={loss}", f"logging.experiment={loss.rpartition(':')[2]}", *settings]
    flags = [word for key in keys for word in ("--set", key)]
    return Path(run_command(*COMMAND, "train", "--recipe", "losses", *flags).removeprefix(RUN_LINE))


def validation(run: RunData, step: int) -> dict[str, float]:
    """The reward of each validation question that was scored after `step` steps."""
    return {
        e.question_id: e.reward for e in run.rollouts if e.side == "val" and e.step == step and e.reward is not None
    }


def mean_of(run: RunData, metric: str, *, last: int = 0) -> str:
    """The mean of a training metric, over the last steps where asked for; "-" where no step has it."""
    values = [row[metric] for row in run.rows("train")[-last:] if metric in row]
    return f"{fmean(values):.3g}" if values else "-"


def line_of(run: RunData, first: RunData) -> str:
    steps = int(run.summary["last_step"])
    before, after = validation(run, 0), validation(run, steps)
    against = difference(validation(first, int(first.summary["last_step"])), after, test=False)
    cells = [
        f"`{Path(run.config['optim']['loss']).name}`",
        str(steps),
        str(estimate(before.values())),
        str(estimate(after.values())),
        str(difference(before, after, test=False)),
        "" if run is first else str(against),
        mean_of(run, "rollout/reward_mean", last=LAST_STEPS),
        mean_of(run, "actor/pg_clipfrac"),
        mean_of(run, "actor/grad_norm"),
    ]
    return f"| {' | '.join(cells)} |"


def table(folders: list[Path]) -> str:
    """The table of these run folders. Raises UserError for a folder that is none."""
    runs = [read_run(folder) for folder in folders]
    rule = "|---" * (HEAD.count("|") - 1) + "|"
    return "\n".join([HEAD, rule, *(line_of(run, runs[0]) for run in runs)])


def main(
    losses: Annotated[list[str] | None, typer.Argument(help="losses; none: all with a name")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE, for every run")] = None,
    runs: Annotated[bool, typer.Option("--runs", help="the arguments are run folders: train nothing")] = False,
) -> None:
    """Train with each loss, and print a table."""
    named = losses or list(PRESETS)
    print(table([Path(name) if runs else trained(name, settings or []) for name in named]))


if __name__ == "__main__":
    typer.run(main)
