"""The two commands of an LLM's pass, which differ in their rubric alone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from foundation.console import Heartbeat
from foundation.errors import UserError
from reward_client import Budget, JudgeBudgetSpent, needed_endpoints
from reward_client.keeper import LLMKeeper
from reward_client.prompting import load_prompt, read_prompt
from sql_agent.curation.choosing import Choice, choose
from sql_agent.curation.rows import check_out, read_rows, write_dropped, write_rows


@dataclass(frozen=True)
class PassFlags:
    """The command line of a pass."""

    questions: Annotated[Path, typer.Argument(help="question file, .jsonl or .parquet")]
    out: Annotated[Path, typer.Argument(help="where the kept rows go")]
    language: Annotated[str, typer.Option(help="of the bundled rubric: zh or en")] = "zh"
    rubric: Annotated[Path | None, typer.Option(help="a rubric of your own, a text file")] = None
    concurrency: Annotated[int, typer.Option(min=1, help="calls in flight")] = 8
    rpm: Annotated[int, typer.Option(min=0, help="most calls a minute; 0: no limit")] = 0
    max_calls: Annotated[int, typer.Option(min=0, help="budget of calls, over all goes; 0: no limit")] = 0
    max_tokens: Annotated[int, typer.Option(min=0, help="budget of tokens, over all goes; 0: no limit")] = 0
    max_cost: Annotated[float, typer.Option(min=0, help="budget of money, by the prices in JUDGE_ENDPOINTS")] = 0.0
    timeout_s: Annotated[float, typer.Option(min=0.1, help="for one question with all its tries")] = 60.0


def decide(flags: PassFlags, *, rubric_name: str) -> int:
    """A pass with the bundled rubric `rubric_name` (_zh or _en); returns the exit status. Raises UserError."""
    check_out(flags.out, flags.questions)
    try:
        if flags.rubric:
            rubric = read_prompt(flags.rubric, asks_for=("keep",), blocks="QUESTION and REFERENCE")
        else:
            rubric = load_prompt(f"{rubric_name}_{flags.language}")
        keeper = LLMKeeper(
            needed_endpoints("LLM"),
            rubric=rubric,
            folder=flags.out.with_name(f"{flags.out.name}.progress"),  # the answers so far
            concurrency=flags.concurrency,
            rpm=flags.rpm,
            timeout_s=flags.timeout_s,
            budget=Budget(calls=flags.max_calls, tokens=flags.max_tokens, cost=flags.max_cost),
        )
    except ValueError as exc:
        raise UserError(str(exc)) from exc
    return run(flags.questions, flags.out, keeper)


def run(questions: Path, out: Path, keeper: LLMKeeper) -> int:
    """Ask what is unasked, write what is decided; returns the exit status."""
    rows = read_rows(questions)
    notes = Console(stderr=True, highlight=False, soft_wrap=True)
    choice = Choice(len(rows))
    with Heartbeat(notes, lambda: f"{choice.n_decided} of {len(rows)} questions are decided"):
        asyncio.run(choose(rows, keeper, choice))
    write_rows(out, (row for place, row in enumerate(rows) if place in choice.kept))
    file = write_dropped(out, ((rows[place], choice.dropped[place]) for place in sorted(choice.dropped)))
    print(f"kept {len(choice.kept)} of {len(rows)}: {out}\ndropped {len(choice.dropped)}: {file}")
    if not choice.n_unasked:
        return 0
    spent = any(isinstance(fault, JudgeBudgetSpent) for fault in choice.faults.values())
    remedy = "raise --max-calls, --max-tokens or --max-cost" if spent else "see to the LLM"
    notes.print(f"error: {choice.n_unasked} questions stay unasked, neither kept nor dropped ({choice.why_unasked()})")
    notes.print(f"{remedy}, and give the same command again: what is decided is not asked again")
    return 1
