"""The order of the training questions: a permutation per epoch, made of (data.seed, epoch) and of nothing else.

Guarantees: a run that stops after any step and goes on sees the questions that it would have seen; every question comes
once per epoch. verl's default does not: the random state of torch's RandomSampler is in no checkpoint, so a resumed
run would take the order of its first epoch again. verl loads the class by its name (data.sampler) and torchdata's
StatefulDataLoader keeps its state in data.pt; checkpoints that were made without it start at the first epoch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from typing import Any

from verl.experimental.dataset.sampler import AbstractSampler


class SeededOrder(AbstractSampler):
    """Indices of `data_source`, epoch after epoch; each `iter` goes on where the one before was left."""

    def __init__(self, data_source: Sized, data_config: Any) -> None:
        self._n_rows = len(data_source)
        self._seed = data_config.get("seed") or 0
        self._epoch = 0
        self._taken = 0

    def __len__(self) -> int:
        """Questions of one epoch."""
        return self._n_rows

    def __iter__(self) -> Iterator[int]:
        """What is left of the epoch; after its last question, the next epoch."""
        if self._taken >= self._n_rows:
            self._epoch, self._taken = self._epoch + 1, 0
        order = list(range(self._n_rows))
        random.Random(f"{self._seed}/{self._epoch}").shuffle(order)
        while self._taken < self._n_rows:
            self._taken += 1
            yield order[self._taken - 1]

    def state_dict(self) -> dict[str, int]:
        """Where the run is, for a checkpoint."""
        return {"epoch": self._epoch, "taken": self._taken}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go to where a checkpoint was."""
        self._epoch, self._taken = state_dict["epoch"], state_dict["taken"]
