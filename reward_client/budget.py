"""What one run has spent on judging, over all its processes, and the end of it.

A call reserves the most that it can use before it is sent and is settled by what the server counts, so the budget is
never exceeded; a server that counts nothing leaves the reservation standing. A call that failed is charged no tokens.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from reward_client.errors import JudgeBudgetSpent
from reward_client.ledger import Ledger
from reward_client.schema import Budget, JudgeEndpoint, Usage


@dataclass(frozen=True)
class Spending:
    """The account of the run named `run`. Costs nothing where `budget` sets no limit."""

    ledger: Ledger
    run: str
    budget: Budget

    def reserve(self, endpoint: JudgeEndpoint, *, prompt_tokens: int, completion_tokens: int) -> dict[str, float]:
        """Put aside what a call may use at most. Raises JudgeBudgetSpent where that is more than what is left."""
        cost = endpoint.cost(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
        wanted = {"calls": 1, "tokens": prompt_tokens + completion_tokens, "cost": cost}
        with self._account() as spent:
            for name, limit in self.budget.model_dump().items():
                if limit and spent.get(name, 0) + wanted[name] > limit:
                    raise JudgeBudgetSpent(
                        f"reward.judge.budget_{name} = {limit:g}: {spent.get(name, 0):g} of it are spent, and the next "
                        f"call may take {wanted[name]:g}. Raise reward.judge.budget_{name}, or start a new run"
                    )
            spent |= {name: spent.get(name, 0) + wanted[name] for name in wanted}
        return wanted

    def settle(self, reserved: dict[str, float], used: Usage) -> None:
        """Replace a reservation by what the call did use (`Usage()`: it failed)."""
        with self._account() as spent:
            for name, amount in {"tokens": used.tokens, "cost": used.cost}.items():
                spent[name] = max(0, spent.get(name, 0) + amount - reserved[name])

    def spent(self) -> dict[str, float]:
        """Calls, tokens and cost so far; {} where nothing is limited."""
        return self.ledger.get(f"spent:{self.run}") or {}

    def _account(self) -> contextlib.AbstractContextManager[dict[str, Any]]:
        limited = any(self.budget.model_dump().values())
        return self.ledger.change(f"spent:{self.run}") if limited else contextlib.nullcontext({})
