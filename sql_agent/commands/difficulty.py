"""`agentgrpo curate difficulty`: the questions that a model answers sometimes and not always."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from foundation.errors import UserError
from foundation.files import whole_lines, write_lines
from foundation.stats import best_of
from sql_agent.config import COMMAND
from sql_agent.curation.rows import check_out, read_rows, write_dropped, write_rows
from sql_agent.evaluation.folder import PLAN, TRIALS, read_plan
from sql_agent.evaluation.measures import samples_of
from sql_agent.records import TrialRecord

LEAST_DIFFERENCE = 1e-6


def difficulty(
    questions: Annotated[Path, typer.Argument(help="question file: .jsonl, .csv or .parquet")],
    out: Annotated[Path, typer.Argument(help="where the kept rows go")],
    model: Annotated[str, typer.Option(help="as `agentgrpo evaluate --model`; empty: the tiny policy")] = "",
    samples: Annotated[int, typer.Option(min=2, help="episodes per question")] = 8,
    threshold: Annotated[float, typer.Option(min=0, max=1, help="answer score of a pass")] = 0.5,
    concurrency: Annotated[int, typer.Option(min=1, help="episodes in flight")] = 32,
    recipe: Annotated[str, typer.Option(help="settings of a recipe")] = "",
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="set any key")] = None,
) -> int:
    """Play each question several times and keep those whose rewards differ: GRPO learns from no others.

    \b
    agentgrpo curate difficulty train.jsonl kept.jsonl --model qwen@http://127.0.0.1:8000/v1 --samples 8

    `agentgrpo evaluate` plays them, in OUT.evaluation; the same command continues there. NAME.pass.jsonl has pass@1 and
    pass@k of each question. Status 1: faults left some out, which are neither kept nor dropped.
    """
    folder = out.with_name(f"{out.name}.evaluation")
    check_out(out, questions)
    rows = read_rows(questions)
    play(questions, folder, model=model, samples=samples, concurrency=concurrency, recipe=recipe, sets=set_ or [])
    records = map(TrialRecord.model_validate_json, whole_lines(folder / TRIALS))
    difficulties = measure({record.key: record for record in records}.values(), threshold=threshold)
    complete = [
        (row, entry) for row in rows if (entry := difficulties.get(row.question.id)) and len(entry.rewards) == samples
    ]
    dropped = [(row, why) for row, entry in complete if (why := entry.why_dropped())]
    write_rows(out, (row for row, entry in complete if not entry.why_dropped()))
    file = write_dropped(out, dropped)
    lines = [
        {
            "id": row.question.id,
            "pass@1": best_of(entry.passed, 1),
            f"pass@{samples}": best_of(entry.passed, samples),
            "rewards": entry.rewards,
        }
        for row, entry in complete
    ]
    write_lines(out.with_name(f"{out.stem}.pass.jsonl"), lines)
    print(f"kept {len(complete) - len(dropped)} of {len(rows)}: {out}\ndropped {len(dropped)}: {file}")
    for n_passed, n in sorted(Counter(sum(entry.passed) for _, entry in complete).items()):
        print(f"  {n_passed} of {samples} passed: {n} questions")
    if len(complete) < len(rows):
        typer.echo(
            f"error: {len(rows) - len(complete)} questions are not measured; give the same command again", err=True
        )
    return int(len(complete) < len(rows))


@dataclass(frozen=True)
class Difficulty:
    """The rewards of a question's samples, and whether each passed: its answer score reached the threshold."""

    rewards: list[float]
    passed: list[bool]

    def why_dropped(self) -> str:
        """Why the question is not worth training on, or "": GRPO learns from differences within a group."""
        if max(self.rewards) - min(self.rewards) > LEAST_DIFFERENCE:
            return ""
        return f"all {len(self.rewards)} samples earned {self.rewards[0]:.3g} ({sum(self.passed)} passed)"


def measure(records: Iterable[TrialRecord], *, threshold: float) -> dict[str, Difficulty]:
    """Question id -> difficulty, for questions with two scored samples or more; a trial that a fault ended is none."""
    sampled = [record for record in records if record.decoding == "sampled"]
    scores = samples_of(sampled, "answer score")
    return {
        question: Difficulty(rewards, [score >= threshold for score in scores[question]])
        for question, rewards in samples_of(sampled, "reward").items()
        if len(rewards) > 1
    }


def play(
    questions: Path, folder: Path, *, model: str, samples: int, concurrency: int, recipe: str, sets: list[str]
) -> None:
    """Begin the evaluation, or continue it. Raises UserError when it was refused."""
    arguments = ["--model", model, "--split", str(questions), "--limit", "0", "--samples", str(samples)]
    arguments += ["--recipe", recipe, *(part for text in sets for part in ("--set", text))]
    if (folder / PLAN).exists() and read_plan(folder)["asked"]["samples"] != samples:
        raise UserError(
            f"--samples {samples}: {folder} was begun with another number; name another file for the results"
        )
    place = ["--resume", str(folder)] if (folder / PLAN).exists() else [*arguments, "--out", str(folder)]
    command = [*COMMAND, "evaluate", *place, "--concurrency", str(concurrency), "--no-inspect-log"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL)
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode not in (0, 1):
        raise UserError(f"the evaluation in {folder} was refused; see above")
