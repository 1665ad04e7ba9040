"""Keep the questions that a model answers sometimes and not always. `--help` says how."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from foundation.command import shown_errors
from foundation.errors import UserError
from foundation.files import whole_lines, write_lines
from sql_agent.config import ROOT
from sql_agent.curation.difficulty import histogram, measure, why_dropped
from sql_agent.curation.rows import check_out, read_rows, write_dropped, write_rows
from sql_agent.evaluation.folder import PLAN, TRIALS, read_plan
from sql_agent.records import TrialRecord

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def main(
    questions: Annotated[Path, typer.Argument(help="question file, .jsonl or .parquet")],
    out: Annotated[Path, typer.Argument(help="where the kept rows go")],
    model: Annotated[str, typer.Option(help="as evaluate.py's --before; empty: the tiny policy")] = "",
    samples: Annotated[int, typer.Option(min=2, help="episodes per question")] = 8,
    threshold: Annotated[float, typer.Option(min=0, max=1, help="answer score of a pass")] = 0.5,
    concurrency: Annotated[int, typer.Option(min=1, help="episodes in flight")] = 32,
    recipe: Annotated[str, typer.Option(help="settings of a recipe")] = "",
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="set any key")] = None,
) -> None:
    """Play each question several times and keep those whose rewards differ: GRPO learns from no others.

    \b
    python utils/filter_by_difficulty.py train.jsonl kept.jsonl --model qwen@http://127.0.0.1:8000/v1 --samples 8

    evaluate.py plays them, in OUT.evaluation; the same command continues there. NAME.pass.jsonl has each question's
    pass@1 and pass@k. Exit status: 0 all are measured, 1 faults left some out, which are neither kept nor dropped.
    """
    folder = out.with_name(f"{out.name}.evaluation")
    with shown_errors():
        check_out(out, questions)
        rows = read_rows(questions)
        play(questions, folder, model=model, samples=samples, concurrency=concurrency, recipe=recipe, sets=set_ or [])
        records = map(TrialRecord.model_validate_json, whole_lines(folder / TRIALS))
        found = measure({record.key: record for record in records}.values(), threshold=threshold)
        known = [row for row in rows if row.question.id in found and len(found[row.question.id].rewards) == samples]
        whys = {row.number: why_dropped(found[row.question.id]) for row in known}
        write_rows(out, (row for row in known if not whys[row.number]))
        file = write_dropped(out, ((row, whys[row.number]) for row in known if whys[row.number]))
        write_lines(
            out.with_name(f"{out.stem}.pass.jsonl"),
            (
                {
                    "id": row.question.id,
                    "pass@1": one.pass_at(1),
                    f"pass@{samples}": one.pass_at(samples),
                    "rewards": one.rewards,
                }
                for row in known
                for one in [found[row.question.id]]
            ),
        )
    n_dropped = sum(map(bool, whys.values()))
    print(f"kept {len(known) - n_dropped} of {len(rows)}: {out}\ndropped {n_dropped}: {file}")
    for passed, n in histogram([found[row.question.id] for row in known]).items():
        print(f"  {passed} passed: {n} questions")
    if len(known) < len(rows):
        typer.echo(f"error: {len(rows) - len(known)} questions are not measured; give the same command again", err=True)
    raise typer.Exit(int(len(known) < len(rows)))


def play(
    questions: Path, folder: Path, *, model: str, samples: int, concurrency: int, recipe: str, sets: list[str]
) -> None:
    """Begin the evaluation, or continue it. Raises UserError when it was refused."""
    asked = [
        "--before",
        model,
        "--split",
        str(questions),
        "--limit",
        "0",
        "--samples",
        str(samples),
        "--recipe",
        recipe,
    ]
    asked += [part for text in sets for part in ("--set", text)]
    if (folder / PLAN).exists() and read_plan(folder)["asked"]["samples"] != samples:
        raise UserError(
            f"--samples {samples}: {folder} was begun with another number; name another file for the results"
        )
    what = ["--resume", str(folder)] if (folder / PLAN).exists() else [*asked, "--out", str(folder)]
    command = [sys.executable, str(ROOT / "sql_agent" / "evaluate.py"), *what, "--concurrency", str(concurrency)]
    done = subprocess.run([*command, "--no-inspect-log"], stdout=subprocess.DEVNULL)
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode not in (0, 1):
        raise UserError(f"the evaluation in {folder} was refused; see above")


if __name__ == "__main__":
    app()
