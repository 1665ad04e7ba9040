"""The order of the training questions: made of (data.seed, epoch) and the files' weights, and of nothing else.

Guarantees: a run that stops after any step and goes on sees the questions that it would have seen (mixture.py says
which). Rows of several files tell theirs in the column `file`, and data.sampler.weights has the weights.
torch's RandomSampler does not: its random state is in no checkpoint. torchdata's StatefulDataLoader keeps the state of
this one in data.pt; checkpoints that were made without it start at the first epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

from torch.utils.data import Sampler

from agl_plugin.run.mixture import order


def files_of(data_source: Any, data_config: Any) -> tuple[list[float], list[int]]:
    """The weights of the files ([]: there is one), and the file of each row."""
    weights = list((data_config.get("sampler") or {}).get("weights") or [])
    n = len(data_source)
    return weights, [int(data_source[i].get("file") or 0) for i in range(n)] if weights else [0] * n


class SeededOrder(Sampler[int]):
    """Indices of `data_source`, epoch after epoch; each `iter` goes on where the one before was left."""

    def __init__(self, data_source: Sized, data_config: Any) -> None:
        self._n_rows = len(data_source)
        self._weights, self._files = files_of(data_source, data_config)
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
        places = order(self._files, self._weights, seed=self._seed, epoch=self._epoch)
        while self._taken < self._n_rows:
            self._taken += 1
            yield places[self._taken - 1]

    def state_dict(self) -> dict[str, int]:
        """Where the run is, for a checkpoint."""
        return {"epoch": self._epoch, "taken": self._taken}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go to where a checkpoint was."""
        self._epoch, self._taken = state_dict["epoch"], state_dict["taken"]
