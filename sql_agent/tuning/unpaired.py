"""TRL's KTOTrainer on encoded pairs, whose sides count one by one: the better one is desired, the other one is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from trl.trainer.kto_config import KTOConfig
from trl.trainer.kto_trainer import KTOTrainer

from sql_agent.tuning.trainers import Pair, Resumable, in_order, pad_id_of, padded, rows_of_pairs, sides_of


class UnpairedTrainer(Resumable, KTOTrainer):
    """TRL's KTOTrainer."""

    def _prepare_dataset(self, dataset: Any, *_args: Any, **_kwargs: Any) -> Any:
        return dataset


@dataclass
class UnpairedCollator:
    """n pairs -> 2 n rows, the better ones first, and TRL's KL rows: each prompt with what the row before it says."""

    pad_id: int

    def __call__(self, pairs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        rows = sides_of(pairs)
        parts = [(row, row[1].index(1)) for row in rows]
        swapped = [
            (prompt[0][:at] + said[0][start:], prompt[1][:at] + said[1][start:])
            for (prompt, at), (said, start) in zip(parts, [parts[-1], *parts], strict=False)
        ]
        labels = torch.tensor([True] * len(pairs) + [False] * len(pairs))
        kl_rows = {f"KL_{name}": tensor for name, tensor in padded(swapped, self.pad_id).items()}
        return {**padded(rows, self.pad_id), **kl_rows, "label": labels}


def kto_trainer(
    model: Any, tokenizer: Any, pairs: Sequence[Pair], *, arguments: dict[str, Any], lora: Any, epochs: int, seed: int
) -> UnpairedTrainer:
    """TRL's KTOTrainer over the sides of encoded pairs, as in trainers.py."""
    return UnpairedTrainer(
        model,
        args=KTOConfig(**arguments),
        data_collator=UnpairedCollator(pad_id_of(tokenizer)),  # pyright: ignore[reportArgumentType]
        train_dataset=in_order(rows_of_pairs(pairs), epochs=epochs, seed=seed),
        processing_class=tokenizer,
        peft_config=lora,
    )
