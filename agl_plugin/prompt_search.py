"""agent-lightning's APO (beam search with textual gradients), with rollouts that this project plays and scores.

Guarantees: the search is agentlightning.algorithm.apo itself; a rollout that a fault ended is in no mean (there it
would count as 0); the optimising model is called at most `max_calls` times; what it writes is a candidate only within
MAX_PROMPT_CHARS. Knows nothing of SQL or medicine. Not covered: its seeds beyond Python's `random`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agentlightning import InMemoryLightningStore, PromptTemplate
from agentlightning.algorithm.apo import APO
from openai import AsyncOpenAI, OpenAIError

from foundation.errors import RunError

RESOURCE = "system_prompt"
MAX_PROMPT_CHARS = 16_000
CALLS_PER_EDIT = 2

Played = dict[str, Any]  # status, final_reward (None: unscored), messages, spans
Play = Callable[[str, str, Sequence[Any]], Awaitable[list[Played]]]


class BudgetSpent(RunError):
    """The search may spend no more; what was found stands."""


class PromptSearch(APO[Any]):
    """APO whose rollouts `play` gives: for a prompt, "train" or "val", and rows."""

    def __init__(self, client: AsyncOpenAI, *, model: str, play: Play, max_calls: int = 0, **options: Any) -> None:
        super().__init__(client, gradient_model=model, apply_edit_model=model, **options)
        self._play, self._max_calls, self.n_calls = play, max_calls, 0

    async def search(self, prompt: str, train: Sequence[Any], val: Sequence[Any]) -> None:
        """Look for a better prompt than `prompt`; `best` has it, also after an error. Raises RunError."""
        self.set_store(InMemoryLightningStore())
        self.set_initial_resources({RESOURCE: PromptTemplate(template=prompt, engine="f-string")})
        try:
            await self.run(train_dataset=list(train), val_dataset=list(val))
        except OpenAIError as exc:
            raise RunError(f"the optimising model failed ({type(exc).__name__}: {str(exc)[:300]})") from exc

    @property
    def best(self) -> str:
        """The prompt with the best mean on all validation rows so far."""
        return self.get_best_prompt().template

    async def evaluate_prompt_on_batch(
        self, prompt: Any, resource_name: str, dataset: Sequence[Any], mode: Any, *, prefix: str | None = None
    ) -> tuple[list[Any], float]:
        """APO's own, but for who plays, and that unscored rollouts are in no mean."""
        played = await self._play(prompt.prompt_template.template, mode, dataset)
        scored = [rollout["final_reward"] for rollout in played if rollout["final_reward"] is not None]
        if not scored:
            raise RunError(f"none of {len(played)} rollouts of a prompt was scored; see trials.jsonl for the reasons")
        return played, sum(scored) / len(scored)

    async def textual_gradient_and_apply_edit(
        self, current_prompt: Any, rollout: list[Any], *, prefix: str | None = None
    ) -> str | None:
        """APO's own, within the budget; None, no candidate, for an edit that is none."""
        if self._max_calls and self.n_calls + CALLS_PER_EDIT > self._max_calls:
            raise BudgetSpent(f"--max-calls {self._max_calls}: {self.n_calls} of them are spent")
        self.n_calls += CALLS_PER_EDIT
        edited = await super().textual_gradient_and_apply_edit(current_prompt, rollout, prefix=prefix)
        text = (edited or "").strip()
        await asyncio.sleep(0)
        return text if 0 < len(text) <= MAX_PROMPT_CHARS else None
