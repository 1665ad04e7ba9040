"""Logits of chosen places alone; log-probability of each token and entropy, in float32 whatever the logits' precision.

bfloat16 has three decimal digits: of 151,936 words, log-probabilities taken in it are off by 4e-3 in the mean and
4e-2 at worst, entropies by 0.05 and 0.23 nats. Guarantees: below 1e-5 of a float64 computation on the same logits;
beside the logits and their gradient no more than a few copies of one part are in memory at a time, forward and
backward. float64 stays float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

# Logits of a part: 128 MiB in float32, 220 tokens of 151,936 words.
PART_ELEMENTS = 2**25


@contextmanager
def logits_at(model: torch.nn.Module, places: torch.Tensor) -> Iterator[None]:
    """Inside the block, calls of the model give the logits at `places` (rows x positions) alone: 1 x places x words.

    Raises ValueError for a model that names no layer that makes them.
    """
    head = getattr(model, "get_output_embeddings", lambda: None)()
    if not isinstance(head, torch.nn.Module):
        raise ValueError(f"{type(model).__name__} names no layer that makes its logits (get_output_embeddings)")
    hook = head.register_forward_pre_hook(lambda _head, args: (args[0][places][None], *args[1:]))
    try:
        yield
    finally:
        hook.remove()


def response_scores(
    model: Any,
    inputs: Mapping[str, Any],
    rows: Any,
    *,
    temperature: float,
    with_entropy: bool,
    dtype: torch.dtype,
    part: slice | None = None,
    whole: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> dict[str, torch.Tensor]:
    """`log_probs`, and `entropy`, of the trained tokens, rows x response, elsewhere 0; the pass computes in `dtype`.

    `inputs` are the model's: each row from its first token on, padded on the right, or without `attention_mask` one
    row after the other; `rows` as in a batch. Where ranks share rows, `part` are the places whose logits the model
    gives here, and `whole` makes what each rank found, one number a place, one tensor of all places.
    """
    wanted = rows["response_mask"].bool()
    at = _logit_places(inputs, rows, wanted)
    part = part or slice(0, inputs["input_ids"].numel())
    is_here = (at >= part.start) & (at < part.stop)
    places = at.new_zeros(part.stop - part.start, dtype=torch.bool)
    places[at[is_here] - part.start] = True
    n_rows = 1 if inputs["attention_mask"] is None else len(wanted)
    with (
        torch.autocast(wanted.device.type, dtype=dtype, enabled=dtype != torch.float32),
        logits_at(model, places.view(n_rows, -1)),
    ):
        logits = model(**inputs, use_cache=False).logits[0]
    tokens = rows["responses"][wanted][is_here]
    values = token_scores(logits, tokens, temperature=temperature, with_entropy=with_entropy)
    scores = {k: v for k, v in zip(("log_probs", "entropy"), values, strict=True) if v is not None}
    if whole:
        scores = {k: whole(v.new_zeros(places.shape).masked_scatter(places, v))[at] for k, v in scores.items()}
    return {k: v.new_zeros(wanted.shape).masked_scatter(wanted, v) for k, v in scores.items()}


def _logit_places(inputs: Mapping[str, Any], rows: Any, wanted: torch.Tensor) -> torch.Tensor:
    """Where the logits of each wanted token stand among the tokens of `inputs`: one place before it."""
    lengths, width = rows["attention_mask"].sum(dim=1), rows["prompts"].shape[1]
    n_prompt = rows["attention_mask"][:, :width].sum(dim=1)
    if inputs["attention_mask"] is None:
        first = lengths.cumsum(0) - lengths
    else:
        first = torch.arange(len(lengths)).to(lengths) * inputs["input_ids"].shape[1]
    row, token = wanted.nonzero(as_tuple=True)
    return first[row] + n_prompt[row] + token - 1


def token_scores(
    logits: torch.Tensor, tokens: torch.Tensor, *, temperature: float, with_entropy: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probability of `tokens` and the entropies, each of shape tokens. `logits`: tokens x words, raw."""
    size = max(1, PART_ELEMENTS // logits.size(-1))
    scores = [
        checkpoint(_scores, part, ids, temperature, with_entropy, use_reentrant=False, preserve_rng_state=False)
        for part, ids in zip(logits.split(size), tokens.split(size), strict=True)
    ]
    log_probs, *entropies = (torch.cat(parts) for parts in zip(*scores, strict=True))
    return log_probs, entropies[0] if with_entropy else None


def _scores(logits: torch.Tensor, tokens: torch.Tensor, temperature: float, with_entropy: bool) -> list[torch.Tensor]:
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    # Not log_softmax, whose sum over 151,936 words is off by 4e-5 on a CPU. The shift has no gradient.
    shifted = exact - exact.amax(dim=-1, keepdim=True).detach()
    weights = shifted.exp()
    total = weights.sum(dim=-1)
    chosen = shifted.gather(-1, tokens[:, None])[:, 0] - total.log()
    return [chosen, total.log() - (weights * shifted).sum(dim=-1) / total] if with_entropy else [chosen]
