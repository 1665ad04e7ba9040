"""An LLM's pass over a question file: each question is kept, dropped with a reason, or stays unasked. Two commands do
so, which differ in their rubric alone.

Guarantees: an answered question is not asked again (reward_client/keeper.py), so a pass that was killed goes on where
it was and ends with the same file, in the order of its input; those in flight at the kill had no answer, and are asked
anew. A fault is neither "keep" nor "drop". Questions are asked one at a time until one is answered, so that an endpoint
that answers nothing usable costs the tries of two questions; later, after a fault that the next question would meet
too, or `concurrency` (at least 2) questions in a row without a usable answer, nothing more is asked.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from foundation.console import Heartbeat
from foundation.errors import UserError
from reward_client import Budget, needed_endpoints
from reward_client.errors import (
    JudgeBudgetSpent,
    JudgeFault,
    JudgeFolderFault,
    JudgeRejected,
    JudgeUnparsable,
    JudgeUnreachable,
)
from reward_client.keeper import LLMKeeper
from reward_client.prompting import load_prompt, read_prompt
from sql_agent.curation.rows import Row, check_out, read_rows, write_dropped, write_rows

FIRST_IN_VAIN = 2  # questions without a usable answer, before there was one
ENDED = 10**9  # as if so many were asked in vain


@dataclass(frozen=True)
class PassFlags:
    """The command line of a pass."""

    questions: Annotated[Path, typer.Argument(help="question file: .jsonl, .csv or .parquet")]
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


@dataclass
class Choice:
    """What became of the rows, by their places in the input."""

    n_rows: int
    kept: set[int] = field(default_factory=set)
    dropped: dict[int, str] = field(default_factory=dict)
    faults: dict[int, JudgeFault] = field(default_factory=dict)

    @property
    def n_decided(self) -> int:
        """How many have an answer."""
        return len(self.kept) + len(self.dropped)

    @property
    def n_unasked(self) -> int:
        """How many have none."""
        return self.n_rows - self.n_decided

    def why_unasked(self) -> str:
        """The faults by kind, and the words of the last."""
        if not self.faults:
            return ""
        kinds = Counter(fault.kind for fault in self.faults.values())
        return f"{', '.join(f'{kind} {n}' for kind, n in kinds.items())}: {list(self.faults.values())[-1]}"


async def choose(rows: Sequence[Row], keeper: LLMKeeper, choice: Choice) -> None:
    """Ask about each row: one at a time until there is an answer, then `keeper.concurrency` of them at once.

    `choice` is filled in as answers come.
    """
    todo = iter(enumerate(rows))
    in_vain = 0

    async def work(*, most_in_vain: int, n_answers: float = math.inf) -> None:
        nonlocal in_vain
        while in_vain < most_in_vain and choice.n_decided < n_answers and (next_one := next(todo, None)):
            place, row = next_one
            try:
                reply = await keeper.decide(question=row.text, reference=row.question.answer)
            except JudgeFault as fault:
                choice.faults[place] = fault
                unusable = isinstance(fault, JudgeUnreachable | JudgeUnparsable)
                # A JudgeRejected itself is a refused key, address or model; its children are about one request.
                is_final = isinstance(fault, JudgeBudgetSpent | JudgeFolderFault) or type(fault) is JudgeRejected
                in_vain = ENDED if is_final else in_vain + unusable
            else:
                in_vain = 0
                if reply.keep:
                    choice.kept.add(place)
                else:
                    choice.dropped[place] = reply.reason

    await work(most_in_vain=FIRST_IN_VAIN, n_answers=1)
    if choice.n_decided:
        await asyncio.gather(
            *(work(most_in_vain=max(FIRST_IN_VAIN, keeper.concurrency)) for _ in range(keeper.concurrency))
        )
