"""TRL's trainers on rows of token ids, with this project's checkpoints: folders global_step_N, complete or not there.

Guarantees: rows go to TRL as they are encoded, so the supervised tokens are those of GRPO's mask; the losses are TRL's.
A checkpoint has weights (safetensors), optimizer, schedule, random numbers and the place in the data, and counts from
the moment when latest_checkpointed_iteration.txt names it. TRL takes seconds to import: here alone.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.kto_config import KTOConfig
from trl.trainer.kto_trainer import KTOTrainer
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer
from trl.trainer.utils import pad

from agl_plugin.update.resuming import own_settings
from foundation.chat_template import pad_id_of
from foundation.files import write_text
from foundation.run_folder import NOTE, step_folder, steps_of
from foundation.weights import share
from sql_agent.config import DpoConfig, TuneConfig
from sql_agent.tuning.encoding import Encoded

IGNORED = -100  # a label that does not count
Row = Sequence[list[int]]  # token ids, and 1 where one counts
BUCKET_BATCHES = 8  # whose rows are sorted by length together: they still mix


class Resumable:
    """Mixed into a trainer: rows as they are encoded, and `keep_checkpoints` of them as global_step_N/actor."""

    keep_checkpoints: int
    args: Any
    optimizer: Any
    lr_scheduler: Any
    state: Any

    def _prepare_dataset(self, dataset: Any, *_args: Any, **_kwargs: Any) -> Any:
        return dataset  # encoded already

    def create_model_card(self, *_args: Any, **_kwargs: Any) -> None:
        """TRL would write one beside each checkpoint; `agentgrpo export` writes this project's."""

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        schedule = getattr(self.lr_scheduler, "scheduler", self.lr_scheduler)  # as Accelerate wraps it
        with own_settings(self.optimizer, schedule):
            super()._load_optimizer_and_scheduler(checkpoint)  # pyright: ignore[reportAttributeAccessIssue]

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)  # pyright: ignore[reportAttributeAccessIssue]
        root, step = Path(self.args.output_dir), self.state.global_step
        actor = step_folder(root, step) / "actor"
        shutil.rmtree(actor.parent, ignore_errors=True)
        actor.parent.mkdir()
        os.replace(root / f"{PREFIX_CHECKPOINT_DIR}-{step}", actor)
        (actor / "training_args.bin").unlink(missing_ok=True)  # a pickle that nothing reads
        share(actor)
        write_text(root / NOTE, str(step))
        for old in steps_of(root)[: -self.keep_checkpoints]:
            shutil.rmtree(old)


class ChatTrainer(Resumable, SFTTrainer):
    """TRL's SFTTrainer."""


class PairTrainer(Resumable, DPOTrainer):
    """TRL's DPOTrainer on encoded pairs: of a completion the policy's own tokens count, tool results do not."""


class UnpairedTrainer(Resumable, KTOTrainer):
    """TRL's KTOTrainer on encoded pairs, whose sides count one by one: the better one is desired, the other is not."""


def paired(pairs: Sequence[dict[str, Any]], *, pad_id: int) -> dict[str, torch.Tensor]:
    """Pairs -> tensors of 2 n rows, padded on the right: the chosen ones, then the rejected ones."""
    return padded(sides_of(pairs), pad_id)


def unpaired(pairs: Sequence[dict[str, Any]], *, pad_id: int) -> dict[str, torch.Tensor]:
    """The same, and TRL's KL rows: each prompt with what the row before it says."""
    rows = sides_of(pairs)
    starts = [mask.index(1) for _, mask in rows]
    swapped = [
        [prompt[:start] + completion[other:] for prompt, completion in zip(rows[n], rows[n - 1], strict=True)]
        for n, (start, other) in enumerate(zip(starts, [starts[-1], *starts], strict=False))
    ]
    labels = torch.tensor([True] * len(pairs) + [False] * len(pairs))
    kl_rows = {f"KL_{name}": tensor for name, tensor in padded(swapped, pad_id).items()}
    return padded(rows, pad_id) | kl_rows | {"label": labels}


def padded(rows: Sequence[Row], pad_id: int) -> dict[str, torch.Tensor]:
    ids, mask = ([torch.tensor(row[k]) for row in rows] for k in (0, 1))
    return {
        "input_ids": pad(ids, padding_value=pad_id),
        "attention_mask": pad([torch.ones_like(row) for row in ids], padding_value=0),
        "completion_mask": pad(mask, padding_value=0),
    }


def sides_of(pairs: Sequence[dict[str, Any]]) -> list[Row]:
    """Token ids and mask of each side: the better ones, then the others."""
    return [pair["sides"][side] for side in (0, 1) for pair in pairs]


def in_order(
    rows: list[dict[str, Any]], *, epochs: int, seed: int, lengths: Sequence[int] = (), batch_rows: int = 1
) -> Dataset:
    """The rows of all epochs, each epoch's in an order of its own; given lengths, like ones share a batch."""
    rng = random.Random(seed)
    places = list[int]()
    for _ in range(epochs):
        order = rng.sample(range(len(rows)), len(rows))
        places += alike(order, lengths, batch_rows=batch_rows, rng=rng) if lengths else order
    return Dataset.from_list(rows).select(places)


def alike(order: list[int], lengths: Sequence[int], *, batch_rows: int, rng: random.Random) -> list[int]:
    """The same order but for BUCKET_BATCHES batches at a time, whose rows are sorted into them by length.

    Of conversations of a few lengths it saves a third of the time: a batch is padded to its longest row.
    """
    batches: list[tuple[int, ...]] = []
    for window in itertools.batched(order, BUCKET_BATCHES * batch_rows):
        batches_alike = list(itertools.batched(sorted(window, key=lengths.__getitem__), batch_rows))
        last = [batches_alike.pop()] if len(batches_alike[-1]) < batch_rows else []
        batches += rng.sample(batches_alike, len(batches_alike)) + last
    return [n for batch in batches for n in batch]


# The trainer of a loss, its arguments, and what makes tensors of a batch's pairs.
PREFERENCES: dict[str, Any] = {
    "dpo": (PairTrainer, DPOConfig, paired),
    "kto": (UnpairedTrainer, KTOConfig, unpaired),
}


def trainer_of(
    tune: TuneConfig, model: Any, tokenizer: Any, rows: Any, *, arguments: dict[str, Any], lora: Any, **order: Any
) -> Any:
    """TRL's trainer of the method over encoded rows or pairs, with its `arguments`; `lora` is a new adapter's, or None.

    `order`: epochs, and the seed of the order in each.
    """
    if isinstance(tune, DpoConfig):
        kind, arguments_of, collate = PREFERENCES["kto" if tune.loss == "kto" else "dpo"]
        collator = functools.partial(collate, pad_id=pad_id_of(tokenizer))
        data = in_order([{"sides": [[row.ids, row.mask] for row in pair]} for pair in rows], **order)
    else:
        kind, arguments_of, collator = ChatTrainer, SFTConfig, None
        lengths = [len(row) for row in rows]
        data = in_order([labelled(row) for row in rows], **order, batch_rows=tune.batch_size, lengths=lengths)
    return kind(
        model,
        args=arguments_of(**arguments),
        data_collator=collator,
        train_dataset=data,
        processing_class=tokenizer,
        peft_config=lora,
    )


def labelled(row: Encoded) -> dict[str, list[int]]:
    labels = [token if counts else IGNORED for token, counts in zip(row.ids, row.mask, strict=True)]
    return {"input_ids": row.ids, "labels": labels}
