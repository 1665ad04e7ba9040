"""`agentgrpo audit`: from a reward to the question, the tokens, the tools, the verdict, the rows and the update.

Guarantees: the file is only read; what a model, a judge or a database wrote is printed as text, control characters
written out. The parts stand in sql_agent/run_audit/ and agl_plugin/audit/.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from agl_plugin.audit.schema import audit_file, opened
from foundation import run_folder
from foundation.console import clean, quiet
from foundation.environment import prepare_environment
from foundation.errors import UserError
from foundation.files import whole_object
from sql_agent.run_audit import search
from sql_agent.run_audit.chain import Chain, short

Run = Annotated[Path, typer.Argument(metavar="RUN", help="a run folder, or an audit.db")]


@contextmanager
def reading(run: Path) -> Iterator[sqlite3.Connection]:
    """The audit of a run. Raises UserError."""
    try:
        with closing(opened(run)) as connection:
            yield connection
    except sqlite3.Error as exc:
        raise UserError(f"{run}: cannot be read as an audit ({exc}); name a run that kept one") from exc


def say(line: str) -> None:
    """Print a line that may hold anything."""
    typer.echo(clean(line))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return short(f"{value:.4g}" if isinstance(value, float) else str(value))


def table(rows: list[dict[str, Any]]) -> None:
    lines = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)] if rows else []
    widths = [max(len(clean(cell)) for cell in column) for column in zip(*lines, strict=True)]
    for line in lines:
        say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def show(run: Run) -> None:
    """What a run's audit holds: steps, rewards, updates, and why rollouts are unscored."""
    with reading(run) as connection:
        (about,) = connection.execute("SELECT * FROM run").fetchall()
        settings = json.loads(about["settings"])
        say(f"run {about['id']}, model {settings['verl']['actor_rollout_ref']['model']['path']}")
        if source := settings.get("from_store"):
            say(f"trained from the stored rollouts of {source['folder']}, each at most {source['uses']} x")
        table(search.steps(connection))
        for reason, n in search.reasons(connection).items():
            say(f"unscored: {n} {reason}")


def find(
    run: Run,
    min_reward: Annotated[float | None, typer.Option(help="rewards from here")] = None,
    max_reward: Annotated[float | None, typer.Option(help="rewards up to here")] = None,
    unscored: Annotated[str, typer.Option(metavar="REASON", help="unscored for this reason, or `any`")] = "",
    question: Annotated[str, typer.Option(metavar="TEXT", help="a question's id, or a part of its text")] = "",
    tool_error: Annotated[bool, typer.Option("--tool-error", help="a tool call failed")] = False,
    step: Annotated[int | None, typer.Option(help="of this training step")] = None,
    mode: Annotated[Literal["train", "val"] | None, typer.Option(help="training or validation")] = None,
    agent: Annotated[str, typer.Option(metavar="NAME", help="of this agent of a mixed run, or `default`")] = "",
    limit: Annotated[int, typer.Option(min=1, help="at most so many")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object per line")] = False,
) -> None:
    """Find rollouts; conditions add up. Example: agentgrpo audit find RUN --max-reward 0.2 --tool-error"""
    if min_reward is not None and max_reward is not None and min_reward > max_reward:
        raise UserError(f"--min-reward {min_reward:g} and --max-reward {max_reward:g}: no reward is both; swap them")
    wanted = search.values_of(
        min_reward=min_reward, max_reward=max_reward, unscored=unscored, question=question, tool_error=tool_error,
        step=step, mode=mode, agent=agent,
    )  # fmt: skip
    with reading(run) as connection:
        rows = search.find(connection, wanted, limit=limit)
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row))  # ASCII: no control character is left as it is
        return
    table(rows)
    more = f", the first {limit}: --limit shows more" if len(rows) == limit else ""
    say(f"{len(rows)} rollout(s){more}")


def why(run: Run, rollout: Annotated[str, typer.Argument(help="its id, or the beginning of it")]) -> None:
    """Why a rollout got its reward, and what that did to the weights: its whole chain, in words, with all ids."""
    with reading(run) as connection:
        whole_id = search.rollout_id(connection, rollout)
        for line in Chain(connection, whole_id, folder=run if run.is_dir() else run.parent).lines():
            say(line)


def verify(run: Run) -> int:
    """Check everything: no changed bit, and all rows, masks and advantages computed again from the stored calls.

    Status 1: something does not hold.
    """
    from agl_plugin.audit.verify import verify as check

    result = check(run)
    for line in (*result.notes, *(f"PROBLEM {problem}" for problem in result.problems)):
        say(line)
    counts = ", ".join(f"{n} {name}" for name, n in sorted(result.counts.items()) if name != "problems")
    say(f"{'FAILED' if result.problems else 'ok'}: {result.counts['problems']} problems; checked {counts or 'nothing'}")
    return int(bool(result.problems))


def replay(run: Run, step: Annotated[int, typer.Argument(min=1, help="the training step")]) -> int:
    """Repeat the update of a step, without vLLM; compare gradient norms, weights and the optimizer.

    Needs the checkpoint of the step before (trainer.save_every = 1), or, for a run's first step, its start model; and
    the device that the run had. Status 1: it is another update, not the same but for roundings.
    """
    with quiet(Path(os.devnull)):  # what verl and its packages say
        config = whole_object(audit_file(run).parent / run_folder.CONFIG)
        on_cpu = config["trainer"]["device"] == "cpu"
        lora = config["model"]["lora_rank"] > 0
        prepare_environment(cpu=on_cpu, offline=True, lora=lora)
        from agl_plugin.audit.replay import replay as repeat

        repeated_step = repeat(run, step)
    for name in ("grad_norms", "weights_before", "weights_after"):
        say(f"{name}: {getattr(repeated_step.stored, name)} in the run, {getattr(repeated_step.repeated, name)} now")
    gaps = ", ".join(f"{name} {gap:.2g}" for name, gap in repeated_step.gaps.items())
    wrong = repeated_step.differences
    say(f"DIFFERENT: {'; '.join(wrong)}" if wrong else f"ok: the same update; differences: {gaps}")
    return int(bool(wrong))
