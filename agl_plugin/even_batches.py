"""A worker's rows -> mini batches in which each trained token counts the same.

verl cuts a fixed number of rows per optimizer step and gives each micro batch the same weight, however many rows and
tokens it holds. Rollouts that need two rows, or were left out, then make a last optimizer step of a few rows at the
full rate, or a last micro batch whose rows count many times. Here the rows are spread over the planned number of
steps, and advantages are scaled so that the loss of a step is the mean over its trained tokens:
  sum over micro batches of mean_micro(loss) / k  ->  sum of all token losses / tokens of the step
The scaling is positive, so that clipping is the same. KL and entropy terms keep verl's weights. One rank's share is
evened out within itself; the ranks count alike.
"""

from __future__ import annotations

import math
from typing import Any

from verl import DataProto

N_UPDATES = "agentgrpo_n_updates"


def rows_per_update(n_rows: int, *, n_updates: int, micro_rows: int) -> int:
    """Rows of one optimizer step: a multiple of `micro_rows`, such that at most `n_updates` steps are made."""
    return math.ceil(math.ceil(n_rows / n_updates) / micro_rows) * micro_rows


def spread(data: DataProto, *, rows: int, micro_rows: int) -> None:
    """Scale the advantages of `data` in place, for optimizer steps of `rows` rows in micro batches of `micro_rows`."""
    tensors: Any = data.batch
    tokens = tensors["response_mask"].sum(1).tolist()
    factors: list[float] = []
    for start in range(0, len(tokens), rows):
        update = tokens[start : start + rows]
        for first in range(0, len(update), micro_rows):
            micro = update[first : first + micro_rows]
            factors += [sum(micro) * (rows // micro_rows) / max(1, sum(update))] * len(micro)
    tensors["advantages"] = tensors["advantages"] * tensors["advantages"].new_tensor(factors)[:, None]
