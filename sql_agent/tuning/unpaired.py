"""TRL's KTOTrainer on encoded pairs, whose sides count one by one: the better one is desired, the other one is not."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from trl.trainer.kto_config import KTOConfig
from trl.trainer.kto_trainer import KTOTrainer

from sql_agent.tuning.trainers import Resumable, padded, preference_trainer, sides_of


class UnpairedTrainer(Resumable, KTOTrainer):
    """TRL's KTOTrainer."""


@dataclass
class UnpairedCollator:
    """n pairs -> 2 n rows, the better ones first, and TRL's KL rows: each prompt with what the row before it says."""

    pad_id: int

    def __call__(self, pairs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        rows = sides_of(pairs)
        parts = [(row, row[1].index(1)) for row in rows]
        swapped = [
            (prompt[0][:at] + completion[0][start:], prompt[1][:at] + completion[1][start:])
            for (prompt, at), (completion, start) in zip(parts, [parts[-1], *parts], strict=False)
        ]
        labels = torch.tensor([True] * len(pairs) + [False] * len(pairs))
        kl_rows = {f"KL_{name}": tensor for name, tensor in padded(swapped, self.pad_id).items()}
        return {**padded(rows, self.pad_id), **kl_rows, "label": labels}


kto_trainer = functools.partial(preference_trainer, (UnpairedTrainer, KTOConfig, UnpairedCollator))
