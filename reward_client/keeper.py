"""LLMs as readers of a data set: a question (and its reference, where there is one) -> keep it or not, and why.

Guarantees: as of the judge (judge.py): the question stands between markers that it cannot forge; an answer is read from
one strict JSON object; every failure is a JudgeFault and never a "keep" or a "drop"; an answered question is not asked
again as long as `folder` is kept, whoever was killed since.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reward_client.judge import LLMJudge
from reward_client.parsing import KEEP_SCHEMA, KeepReply, parse_keep
from reward_client.prompting import build_keep_messages
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
        timeout_s: float = 60.0,
        concurrency: int = 8,
        rpm: int = 0,
        budget: Budget | None = None,
    ) -> None:
        limits: dict[str, Any] = {"timeout_s": timeout_s, "rpm": rpm, "budget": budget}
        super().__init__(endpoints, folder=folder, run=ACCOUNT, concurrency=concurrency, **limits)
        self._rubrics["keep"], self.concurrency = rubric, concurrency

    async def decide(self, *, question: str, reference: str = "") -> KeepReply:
        """Keep or not: from the folder where it was asked before. Raises JudgeFault."""
        item = {"question": question, "reference": reference}
        request = self._request(build_keep_messages(self._rubrics["keep"], **item), "decision", KEEP_SCHEMA)
        reply, _ = await self._once("keep", item, request, parse_keep, KeepReply)
        return reply
