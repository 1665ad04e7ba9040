"""An LLM's pass over a question file: each question is kept, dropped with a reason, or stays unasked.

Guarantees: an answered question is not asked again (reward_client/keeper.py), so a pass that was killed goes on where
it was and ends with the same file, in the order of its input; those in flight at the kill had no answer, and are asked
anew. A fault is neither "keep" nor "drop". After a fault that the next question would meet too, or `concurrency`
questions in a row without an answer, nothing more is asked.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from reward_client.errors import JudgeBudgetSpent, JudgeFault, JudgeFolderFault, JudgeRejected, JudgeUnreachable
from reward_client.keeper import LLMKeeper
from sql_agent.curation.rows import Row


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


async def choose(rows: Sequence[Row], keeper: LLMKeeper, *, on_done: Callable[[Choice], None]) -> Choice:
    """Ask about each row, `keeper.concurrency` of them at once."""
    choice, todo, in_vain = Choice(len(rows)), iter(enumerate(rows)), 0

    async def work() -> None:
        nonlocal in_vain
        for place, row in todo:
            if in_vain >= keeper.concurrency:
                return
            try:
                reply = await keeper.decide(question=row.text, reference=row.question.answer)
            except JudgeFault as fault:
                choice.faults[place] = fault
                in_vain = keeper.concurrency if _is_final(fault) else in_vain + isinstance(fault, JudgeUnreachable)
            else:
                in_vain = 0
                if reply.keep:
                    choice.kept.add(place)
                else:
                    choice.dropped[place] = reply.reason
            on_done(choice)

    await asyncio.gather(*(work() for _ in range(min(keeper.concurrency, len(rows)))))
    return choice


def _is_final(fault: JudgeFault) -> bool:
    # A JudgeRejected itself is a refused key, address or model; its children are about one request.
    return isinstance(fault, JudgeBudgetSpent | JudgeFolderFault) or type(fault) is JudgeRejected
