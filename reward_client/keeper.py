"""LLMs as readers of a data set: a question (and its reference, where there is one) -> keep it or not, and why.

Guarantees: as of the judge (judge.py): the question stands between markers that it cannot forge; an answer is read from
one strict JSON object; every failure is a JudgeFault and never a "keep" or a "drop"; an answered question is not asked
again as long as `folder` is kept, whoever was killed since.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reward_client.judge import LLMJudge
from reward_client.parsing import DECISION, KeepReply
from reward_client.prompting import question_blocks
from reward_client.schema import Budget, JudgeEndpoint

ACCOUNT = "keeper"  # the budget is that of the folder, over all runs that continue it


class LLMKeeper(LLMJudge):
    """Decides about questions by a rubric, the text. `folder` holds the answers so far, limits and budget.

    Raises ValueError for no endpoint, or a budget of money without prices.
    """

    def __init__(
        self,
        endpoints: Sequence[JudgeEndpoint],
        *,
        rubric: str,
        folder: Path,
        timeout_s: float,
        concurrency: int,
        rpm: int,
        budget: Budget,
    ) -> None:
        super().__init__(
            endpoints, timeout_s=timeout_s, concurrency=concurrency, rpm=rpm, budget=budget, folder=folder, run=ACCOUNT
        )
        self._rubrics[DECISION.name], self.concurrency = rubric, concurrency

    async def decide(self, *, question: str, reference: str = "") -> KeepReply:
        """Keep or not: from the folder where it was asked before. Raises JudgeFault."""
        reply, _ = await self._once(DECISION, question_blocks(question=question, reference=reference))
        return reply
