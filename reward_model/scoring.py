"""Load a reward model, score texts with it, and measure it on pairs: what API, command line and training share.

Guarantees: only checked folders are loaded (reward_model.folder), without code of their own and without pickle; a score
does not depend on the other items of its batch beyond rounding (right padding under a causal mask; 1e-4 in float32);
a score is a finite number or an error.
Not covered: several GPUs. A model must fit on one device.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from scipy.stats import binomtest
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from foundation.chat_template import pad_id_of
from foundation.errors import RunError, UserError
from reward_model.encoding import Encoded, Encoder
from reward_model.folder import check_reward_model
from reward_model.pairs import Item, Pair

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
DEFAULT_MAX_TOKENS = 2048
# What one forward pass holds with its padding: the attention mask alone grows with rows x tokens x tokens. A processor
# is busy with few tokens, and on it padding is lost time: shorter passes of more equal lengths are faster.
MAX_PASS_ROWS = 64
MAX_PASS_TOKENS = {"cpu": 2048, "cuda": 32_768}
PROBE = (("user", "1"), ("assistant", "1"))


class NotFinite(RunError):
    """The model gave NaN or infinity, which is no score."""


@dataclass(frozen=True)
class Scored:
    """The raw logit, and whether the item had to be cut to fit the model."""

    score: float
    truncated: bool


class RewardScorer:
    """A loaded reward model. Calls are not thread-safe: use one thread."""

    def __init__(self, model: Any, encoder: Encoder) -> None:
        self.model = model
        self.encoder = encoder
        self._pad_id = model.config.get_text_config().pad_token_id
        self._pass_tokens = MAX_PASS_TOKENS[model.device.type]

    def score(self, items: Sequence[Item]) -> list[Scored]:
        """Scores of any number of items, in order. Raises NotFinite."""
        return self.score_encoded([self.encoder.encode(item.dialogue) for item in items])

    def score_encoded(self, encoded: Sequence[Encoded]) -> list[Scored]:
        """The same for what is encoded already; items of like length share a forward pass."""
        order = sorted(range(len(encoded)), key=lambda i: len(encoded[i].ids))
        scored: dict[int, Scored] = {}
        for places in _passes(order, [len(item.ids) for item in encoded], max_tokens=self._pass_tokens):
            scored |= zip(places, self._forward([encoded[i] for i in places]), strict=True)
        return [scored[i] for i in range(len(encoded))]

    @torch.inference_mode()
    def _forward(self, batch: Sequence[Encoded]) -> list[Scored]:
        width = max(len(item.ids) for item in batch)
        ids = torch.full((len(batch), width), self._pad_id)
        mask = torch.zeros_like(ids)
        for row, item in enumerate(batch):
            ids[row, : len(item.ids)] = torch.tensor(item.ids)
            mask[row, : len(item.ids)] = 1
        device = self.model.device
        logits = self.model(input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False).logits
        scores = logits.float().reshape(len(batch)).tolist()
        if not all(map(math.isfinite, scores)):
            raise NotFinite("the model gave a score that is not a finite number")
        return [Scored(score, item.truncated) for score, item in zip(scores, batch, strict=True)]


def _passes(order: Sequence[int], n_tokens: Sequence[int], *, max_tokens: int) -> Iterator[list[int]]:
    """Runs of `order`, which goes from short to long, within the limits of one forward pass."""
    run: list[int] = []
    for place in order:
        if run and (len(run) == MAX_PASS_ROWS or (len(run) + 1) * n_tokens[place] > max_tokens):
            yield run
            run = []
        run.append(place)
    if run:
        yield run


def load_scorer(
    folder: Path, *, device: str = "auto", dtype: str = "float32", max_tokens: int | None = None
) -> RewardScorer:
    """The reward model of a folder. Raises UserError when it is not one, or cannot be loaded as it is.

    `max_tokens` defaults to what the model was made for, at most DEFAULT_MAX_TOKENS.
    """
    config = check_reward_model(folder)
    limit = config.get("max_position_embeddings")
    limit = limit if isinstance(limit, int) and limit > 0 else DEFAULT_MAX_TOKENS
    max_tokens = max_tokens or min(limit, DEFAULT_MAX_TOKENS)
    if max_tokens > limit:
        raise UserError(
            f"--max-tokens {max_tokens}: the model was made for {limit} (max_position_embeddings); lower it"
        )
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if not tokenizer.is_fast:
        raise UserError(f"{folder}: the tokenizer has no tokenizer.json; save it with a fast tokenizer")
    model = _load_model(folder, DTYPES[dtype]).to(_device(device)).eval()
    text_config = model.config.get_text_config()  # where transformers looks for the end of each row
    if text_config.pad_token_id is None:
        text_config.pad_token_id = pad_id_of(tokenizer)
    scorer = RewardScorer(model, Encoder(tokenizer, max_tokens=max_tokens))
    try:
        scorer.score_encoded([scorer.encoder.encode(PROBE)])
    except NotFinite as exc:
        raise UserError(f"{folder}: {exc}; the weights are damaged, or {dtype} is too narrow for them") from None
    return scorer


def pair_accuracy(scorer: RewardScorer, pairs: Sequence[Pair]) -> dict[str, Any]:
    """How often the better side scores higher: with its 95 % interval, mean margin in logits, and by kind.

    A tie counts as wrong: a model that gives everything one score is right about nothing.
    """
    encoded = [scorer.encoder.encode(dialogue) for pair in pairs for dialogue in pair.dialogues]
    scores = [scored.score for scored in scorer.score_encoded(encoded)]
    margins = [good - bad for good, bad in zip(scores[::2], scores[1::2], strict=True)]
    won = [margin > 0 for margin in margins]
    won_by_kind: dict[str, list[bool]] = defaultdict(list)
    for pair, is_won in zip(pairs, won, strict=True):
        won_by_kind[pair.kind or "unnamed"].append(is_won)
    interval = binomtest(sum(won), len(won)).proportion_ci(method="wilson")
    return {
        "n": len(won),
        "accuracy": statistics.fmean(won),
        "interval": [float(interval.low), float(interval.high)],
        "mean_margin": statistics.fmean(margins),
        "kinds": {kind: {"n": len(w), "accuracy": statistics.fmean(w)} for kind, w in sorted(won_by_kind.items())},
    }


def _load_model(folder: Path, dtype: torch.dtype) -> Any:
    try:
        model, report = AutoModelForSequenceClassification.from_pretrained(
            folder,
            dtype=dtype,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except (ValueError, KeyError, OSError, RuntimeError, SafetensorError) as exc:
        # Shapes that do not fit are a RuntimeError, an unknown architecture a KeyError or ValueError.
        raise UserError(f"{folder}: cannot be loaded as a reward model: {' '.join(str(exc).split())[:300]}") from exc
    missing = sorted(report["missing_keys"]) + [str(key) for key, *_ in report["mismatched_keys"]]
    if missing:
        raise UserError(
            f"{folder}: the weights lack {', '.join(missing[:5])}, which would be made up at random; "
            "give the folder that `agentgrpo reward-model` train or merge wrote"
        )
    return model


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"--device {name}: torch sees no GPU here; use cpu or auto")
    return name
