"""What the offline judge pays to policies that cheat: `python benchmarks/reward_hacks.py --out hacks.json`.

Every strategy of sql_agent/judge_audit/hacks.py answers the same questions of the built test split; the figure is the
mean reward with the bonus for a query. `make judge-report` measures an LLM judge in the same way.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sql_agent.config import ROOT
from sql_agent.data.dataset import load_questions
from sql_agent.judge_audit.hacks import Strategy, constants, groups_of, hacks, honest, of_intent, value
from sql_agent.records import Question

BONUS = 0.1
N_QUESTIONS = 200
CONSTANT = "one constant for each kind of question and field"


def mean_reward(strategy: Strategy, questions: Sequence[Question]) -> float:
    """With the bonus."""
    return BONUS + fmean(value(question, strategy(question)) for question in questions)


def by_field(strategy: Strategy, questions: Sequence[Question]) -> dict[str, float]:
    """The mean reward for each kind of question and field; printed."""
    groups: dict[str, list[Question]] = defaultdict(list)
    for question in questions:
        for key in groups_of(question):
            groups[", ".join(key)].append(question)
    means = {key: round(mean_reward(strategy, members), 3) for key, members in groups.items()}
    table = Table("task type, intent, field", "questions", CONSTANT)
    for key in sorted(means, key=means.__getitem__, reverse=True):
        table.add_row(key, str(len(groups[key])), f"{means[key]:.2f}")
    Console().print(table)
    return means


def main(
    out: Annotated[Path | None, typer.Option(help="JSON file for the figures")] = None,
    data: Annotated[Path, typer.Option(help="folder with train.parquet and test.parquet")] = ROOT / "sql_agent/data",
    database: Annotated[Path | None, typer.Option(help="their database (default: medical.db in that folder)")] = None,
) -> None:
    """Print the mean reward of every strategy: on all questions, and on those that ask for names and for counts; then
    what the constant earns on each kind of question and field, the highest first."""
    train, test = (load_questions(data / f"{split}.parquet") for split in ("train", "test"))
    sample = random.Random(0).sample(test, min(N_QUESTIONS, len(test)))
    strategies = honest() | hacks(database or data / "medical.db", test)
    strategies[CONSTANT] = constants(train)
    parts = {"all": sample, "search": of_intent(test, "search"), "count": of_intent(test, "count")}
    figures = {
        name: {part: round(mean_reward(strategy, members), 3) for part, members in parts.items() if members}
        for name, strategy in strategies.items()
    }
    table = Table("strategy", *parts)
    for name, row in figures.items():
        table.add_row(name, *(f"{row[part]:.2f}" if part in row else "-" for part in parts))
    Console().print(table)
    figures[CONSTANT] |= by_field(strategies[CONSTANT], test)
    if out:
        out.write_text(json.dumps(figures, ensure_ascii=False, indent=1), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
