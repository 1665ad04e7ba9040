"""TRL's KTOTrainer on encoded pairs, whose sides count one by one: the better one is desired, the other one is not."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from trl.trainer.kto_config import KTOConfig
from trl.trainer.kto_trainer import KTOTrainer

from sql_agent.tuning.trainers import Resumable, padded, preference_trainer, sides_of


class UnpairedTrainer(Resumable, KTOTrainer):
    """TRL's KTOTrainer."""


def collated(pairs: Sequence[dict[str, Any]], *, pad_id: int) -> dict[str, Any]:
    """n pairs -> 2 n rows, the better ones first, and TRL's KL rows: each prompt with what the row before it says."""
    rows = sides_of(pairs)
    parts = [(row, row[1].index(1)) for row in rows]
    swapped = [
        (prompt[0][:at] + completion[0][start:], prompt[1][:at] + completion[1][start:])
        for (prompt, at), (completion, start) in zip(parts, [parts[-1], *parts], strict=False)
    ]
    labels = torch.tensor([True] * len(pairs) + [False] * len(pairs))
    kl_rows = {f"KL_{name}": tensor for name, tensor in padded(swapped, pad_id).items()}
    return {**padded(rows, pad_id), **kl_rows, "label": labels}


kto_trainer = functools.partial(preference_trainer, (UnpairedTrainer, KTOConfig, collated))
