"""LLMs as readers of a data set: a question (and its reference, where there is one) -> keep it or not, and why.

Guarantees: as of the judge (judge.py): the question stands between markers that it cannot forge; an answer is read from
one strict JSON object; every failure is a JudgeFault and never a "keep" or a "drop"; an answered question is not asked
again as long as `folder` is kept, whoever was killed since.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reward_client.budget import Spending
from reward_client.chain import Chain, Request
from reward_client.judge import check_endpoints
from reward_client.ledger import Ledger
from reward_client.parsing import KEEP_SCHEMA, KeepReply, parse_keep
from reward_client.prompting import FORMAT, build_keep_messages
from reward_client.schema import Budget, JudgeEndpoint

MAX_TOKENS = 512
ACCOUNT = "keeper"  # the budget is that of the folder, over all runs that continue it


class LLMKeeper:
    """Decides about questions by a rubric. `folder` holds the answers so far, limits and budget.

    Raises ValueError for no endpoint, or a budget of money without prices.
    """

    def __init__(
        self,
        endpoints: Sequence[JudgeEndpoint],
        *,
        rubric: str,
        folder: Path,
        timeout_s: float = 60.0,
        attempts: int = 3,
        concurrency: int = 8,
        rpm: int = 0,
        budget: Budget | None = None,
    ) -> None:
        budget = budget or Budget()
        check_endpoints(endpoints, budget)
        self._rubric, self._ledger = rubric, Ledger(folder)
        self.concurrency = concurrency
        self._chain = Chain(
            endpoints,
            ledger=self._ledger,
            spending=Spending(self._ledger, run=ACCOUNT, budget=budget),
            timeout_s=timeout_s,
            attempts=attempts,
            concurrency=concurrency,
            rpm=rpm,
        )

    async def decide(self, *, question: str, reference: str = "") -> KeepReply:
        """Keep or not: from the folder where it was asked before. Raises JudgeFault."""
        keys = {endpoint.id: self._key(endpoint, question, reference) for endpoint in self._chain.endpoints}

        async def compute() -> tuple[str, dict[str, Any]]:
            messages = build_keep_messages(self._rubric, question=question, reference=reference)
            request = Request(messages=messages, max_tokens=MAX_TOKENS, name="decision", schema=KEEP_SCHEMA)
            answer = await self._chain.ask(request, parse_keep)
            return keys[answer.endpoint.id], answer.value.model_dump()

        return KeepReply.model_validate(await self._ledger.once(list(keys.values()), compute))

    def _key(self, endpoint: JudgeEndpoint, question: str, reference: str) -> str:
        parts = [str(endpoint), "keep", FORMAT, self._rubric, question, reference]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
