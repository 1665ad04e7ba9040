"""An LLM's pass over a question file: each question is kept, dropped with a reason, or stays unasked.

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

from reward_client.errors import (
    JudgeBudgetSpent,
    JudgeFault,
    JudgeFolderFault,
    JudgeRejected,
    JudgeUnparsable,
    JudgeUnreachable,
)
from reward_client.keeper import LLMKeeper
from sql_agent.curation.rows import Row

FIRST_IN_VAIN = 2  # questions without a usable answer, before there was one
ENDED = 10**9  # as if so many were asked in vain


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
    todo, in_vain = iter(enumerate(rows)), 0

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
