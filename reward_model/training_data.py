"""Pairs for the trainer: from a local file, a local folder or the hub; split by prompt; as token ids.

Guarantees: no prompt is in training and in validation; pairs longer than the limit are left out and counted, because a
pair that was cut may have lost what tells its sides apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset, load_dataset
from datasets.exceptions import DatasetNotFoundError
from huggingface_hub.errors import HfHubHTTPError

from foundation.errors import UserError
from reward_model.encoding import Encoder
from reward_model.pairs import Pair, Skipped, make_pair, parsed, read_pairs, split_by_key


@dataclass
class Loaded:
    """Training and validation pairs, and what was left out of each source."""

    train: list[Pair]
    validation: list[Pair]
    skipped: dict[str, Skipped] = field(default_factory=dict)


def load(source: str, *, split: str, eval_source: str | None, eval_share: float, seed: int) -> Loaded:
    """Pairs of `source`, with validation from `eval_source` or held out by prompt. Raises UserError."""
    train, skipped = _read(source, split)
    report = {source: skipped}
    if eval_source:
        validation, report[eval_source] = _read(eval_source, split)
        seen = {pair.prompt for pair in validation}
        unseen = [pair for pair in train if pair.prompt not in seen]
        if not unseen:
            raise UserError(f"{eval_source}: holds every prompt of {source}, so nothing is left to train on")
        if len(unseen) < len(train):
            report[source].counts["prompt is in the validation file"] = len(train) - len(unseen)
        return Loaded(unseen, validation, report)
    train, validation = split_by_key(train, [pair.prompt for pair in train], share=eval_share, seed=seed)
    return Loaded(train, validation, report)


def _read(source: str, split: str) -> tuple[list[Pair], Skipped]:
    path = Path(source)
    if path.suffix in (".jsonl", ".json") or path.is_file():
        return read_pairs(path)
    try:
        rows = load_dataset(source, split=split)
    except (DatasetNotFoundError, HfHubHTTPError, FileNotFoundError, ConnectionError, ValueError) as exc:
        raise UserError(
            f"--dataset_name {source}: neither a .jsonl file nor a folder or hub name with a split {split} "
            f"({' '.join(str(exc).split())[:200]})"
        ) from None
    skipped = Skipped()
    pairs = [pair for _, pair in parsed(enumerate(map(dict, rows), start=1), _pair, skipped)]
    if not pairs:
        raise UserError(f"--dataset_name {source}: no row has chosen and rejected dialogues. Skipped:\n{skipped}")
    return pairs, skipped


def _pair(row: dict[str, Any]) -> Pair:
    """A row with dialogues, with a prompt apart from them, or with plain texts."""
    prompt, chosen, rejected = row.get("prompt"), row.get("chosen"), row.get("rejected")
    if isinstance(prompt, str) and isinstance(chosen, str) and isinstance(rejected, str):
        return make_pair(prompt, chosen, rejected)
    if isinstance(prompt, list) and isinstance(chosen, list) and isinstance(rejected, list):
        chosen, rejected = prompt + chosen, prompt + rejected
    return Pair.model_validate({"chosen": chosen, "rejected": rejected})


def tokenized(pairs: Sequence[Pair], encoder: Encoder, skipped: Skipped) -> Dataset:
    """A dataset with chosen_input_ids and rejected_input_ids; pairs that do not fit are counted."""
    rows = []
    for number, pair in enumerate(pairs, start=1):
        chosen, rejected = map(encoder.encode, pair.dialogues)
        if chosen.truncated or rejected.truncated:
            skipped.add(f"longer than {encoder.max_tokens} tokens", number)
        else:
            rows.append({"chosen_input_ids": chosen.ids, "rejected_input_ids": rejected.ids})
    if not rows:
        raise UserError(f"every pair is longer than {encoder.max_tokens} tokens; raise --max_length")
    return Dataset.from_list(rows)
