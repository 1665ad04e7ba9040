"""What one run has spent on judging, over all its processes, and the end of it.

A call reserves the most that it can use before it is sent and is settled by what the server counts, so the budget is
never exceeded; a server that counts nothing leaves the reservation standing. A call that failed is charged no tokens.
"""

from __future__ import annotations

from reward_client.errors import JudgeBudgetSpent
from reward_client.ledger import Ledger
from reward_client.schema import Budget, JudgeEndpoint, Usage

KEPT_S = 30 * 24 * 3600.0
REMEDY = "Raise reward.judge.budget_{name}, or start a new run"


class Spending:
    """The account of the run named `run`. Costs nothing where `budget` sets no limit."""

    def __init__(self, ledger: Ledger, *, run: str, budget: Budget) -> None:
        self._ledger = ledger
        self._key = f"spent:{run}"
        self._limits = {name: limit for name, limit in budget.model_dump().items() if limit}

    def reserve(self, endpoint: JudgeEndpoint, *, prompt_tokens: int, completion_tokens: int) -> dict[str, float]:
        """Put aside what a call may use at most. Raises JudgeBudgetSpent where that is more than what is left."""
        cost = endpoint.cost(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
        wanted = {"calls": 1, "tokens": prompt_tokens + completion_tokens, "cost": cost}
        if not self._limits:
            return wanted
        with self._ledger.change(self._key, expire_s=KEPT_S) as spent:
            for name, limit in self._limits.items():
                if spent.get(name, 0) + wanted[name] > limit:
                    raise JudgeBudgetSpent(
                        f"reward.judge.budget_{name} = {limit:g}: {spent.get(name, 0):g} of it are spent, and the next "
                        f"call may take {wanted[name]:g}. {REMEDY.format(name=name)}"
                    )
            self._add(spent, wanted)
        return wanted

    def settle(self, reserved: dict[str, float], used: Usage) -> None:
        """Replace a reservation by what the call did use (`Usage()`: it failed)."""
        if self._limits:
            with self._ledger.change(self._key, expire_s=KEPT_S) as spent:
                self._add(spent, {"tokens": used.tokens - reserved["tokens"], "cost": used.cost - reserved["cost"]})

    def spent(self) -> dict[str, float]:
        """Calls, tokens and cost so far; {} where nothing is limited."""
        return self._ledger.get(self._key) or {}

    @staticmethod
    def _add(spent: dict[str, float], amounts: dict[str, float]) -> None:
        for name, amount in amounts.items():
            spent[name] = max(0, spent.get(name, 0) + amount)
