"""TRL's KTOTrainer on encoded pairs, whose sides count one by one: the better one is desired, the other one is not.

TRL encodes a data set when the trainer is made, tool results as what the policy said. So it is made with two words, and
gets its rows, supervised as everywhere here, and their collator afterwards. Apart from trainers.py because TRL
calls it experimental, and to load it takes time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from trl.import_utils import suppress_experimental_warning
from trl.trainer.utils import pad

from sql_agent.config import TrainConfig
from sql_agent.tuning.arguments import trl_arguments
from sql_agent.tuning.encoding import Encoded
from sql_agent.tuning.trainers import IGNORED, Resumable, in_order, lora_of, pad_id_of, rows_of_pairs, sides_of

with suppress_experimental_warning():
    from trl.experimental.kto import KTOConfig, KTOTrainer

STUB = Dataset.from_list([{"prompt": "a", "completion": "b", "label": label} for label in (True, False)])
Row = tuple[list[int], list[int]]


class UnpairedTrainer(Resumable, KTOTrainer):  # pyright: ignore[reportIncompatibleMethodOverride]
    """TRL's KTOTrainer."""


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
        labels = [True] * len(pairs) + [False] * len(pairs)
        return {**self._padded("completion", rows), **self._padded("KL_completion", swapped), "label": labels}

    def _padded(self, name: str, rows: list[Row]) -> dict[str, torch.Tensor]:
        ids, mask = ([torch.tensor(row[k]) for row in rows] for k in (0, 1))
        labels = [row.where(on > 0, IGNORED) for row, on in zip(ids, mask, strict=True)]
        return {
            f"{name}_input_ids": pad(ids, padding_value=self.pad_id),
            f"{name}_attention_mask": pad([torch.ones_like(row) for row in ids], padding_value=0),
            f"{name}_labels": pad(labels, padding_value=IGNORED),
        }


def kto_trainer(
    config: TrainConfig, model: Any, tokenizer: Any, pairs: Sequence[tuple[Encoded, Encoded]], **told: Any
) -> UnpairedTrainer:
    """TRL's KTOTrainer over the sides of encoded pairs."""
    trainer = UnpairedTrainer(
        model,
        args=KTOConfig(**trl_arguments(config, **told)),
        data_collator=UnpairedCollator(pad_id_of(tokenizer)),  # pyright: ignore[reportArgumentType]
        train_dataset=STUB,
        processing_class=tokenizer,
        peft_config=lora_of(config),
    )
    trainer.train_dataset = in_order(rows_of_pairs(pairs), epochs=config.dpo.epochs, seed=config.data.seed)
    trainer.kept = config.trainer.keep_checkpoints
    return trainer
