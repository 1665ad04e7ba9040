"""Which rows make which optimizer step on which rank.

Guarantees: a training step has the planned number of optimizer steps, whatever the number of rows; their rows differ by
one at most, and which they are follows from the seed, the step and the order of the rollouts alone: not from the
rewards, the lengths or the order in which rollouts ended. Rows without an advantage are left out after that, so that
they change neither the number nor the parts; a part that has no other is not made at all, since AdamW would move the
weights by its momentum. Every rank makes the same number of steps with the same number of rows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from verl import DataProto

from agl_plugin.update.batch import ROW_NUMBER
from agl_plugin.update.rules import PLAN, Plan, UpdateRules, parts


def partition(n_rows: int, *, n_updates: int, seed: str) -> list[list[int]]:
    """The rows of each of `n_updates` optimizer steps, in random order."""
    order = list(range(n_rows))
    random.Random(seed).shuffle(order)
    return [order[update::n_updates] for update in range(n_updates)]


def micro_batches(widths: Sequence[int], limit: int) -> tuple[int, ...]:
    """Rows of each micro batch, in order: as many as have at most `limit` tokens with their padding, one at least.

    `widths`: tokens of each row.
    """
    counts, widest = [0], 0
    for width in widths:
        widest = max(widest, width)
        if counts[-1] and (counts[-1] + 1) * widest > limit:
            counts.append(0)
            widest = width
        counts[-1] += 1
    return tuple(counts)


def optimizer_steps(row_numbers: list[int], rules: UpdateRules, *, step: int) -> dict[int, int]:
    """The optimizer step, from 1, that the row of each number belongs to."""
    numbers = sorted(row_numbers)
    steps = partition(len(numbers), n_updates=rules.n_updates, seed=f"{rules.seed}/{step}")
    return {numbers[place]: n for n, part in enumerate(steps, start=1) for place in part}


def moving(batch: DataProto, rules: UpdateRules) -> torch.Tensor:
    """Whether a row can change a weight, one bool per row."""
    tensors: Any = batch.batch
    decides = (tensors["advantages"] != 0).any(dim=1) | (not rules.advantage_decides)
    return decides & tensors["response_mask"].any(dim=1)


def planned(batch: DataProto, rules: UpdateRules, *, n_ranks: int, step: int, only_pass: bool = False) -> DataProto:
    """The rows to compute, one equal share per rank after the other, with their Plan in `meta_info`.

    Ranks take turns in order of length, so that what they compute together is of like width; where rows do not divide
    over the ranks, one without trained tokens fills up.
    """
    tensors: Any = batch.batch
    numbered = torch.argsort(tensors[ROW_NUMBER]).tolist()
    n_tokens = tensors["attention_mask"].sum(dim=1).tolist()
    computed = moving(batch, rules).tolist()
    shortest = min(numbered, key=lambda row: n_tokens[row])
    sizes: list[int] = []
    shares: list[list[tuple[int, bool]]] = [[] for _ in range(n_ranks)]  # per rank: row, and whether it only fills up
    for part in partition(len(batch), n_updates=rules.n_updates, seed=f"{rules.seed}/{step}"):
        rows = sorted((numbered[place] for place in part), key=lambda row: n_tokens[row])
        rows = [row for row in rows if computed[row]]
        filled = [(shortest, True)] * (-len(rows) % n_ranks) + [(row, False) for row in rows]
        sizes.append(len(filled) // n_ranks)
        for rank, share in enumerate(shares):
            share += filled[rank::n_ranks]
    chosen = [pair for share in shares for pair in share] or [(shortest, True)] * n_ranks
    data = batch.select_idxs([row for row, _ in chosen])
    fills = torch.tensor([fills for _, fills in chosen])
    widths = [n_tokens[row] for row, _ in shares[-1]]  # the last rank has the longest rows
    limit = rules.micro_batch_tokens
    cuts = tuple(micro_batches(step_widths, limit) for step_widths in parts(widths, sizes)) if limit else None
    filled_tensors: Any = data.batch
    for name in ("response_mask", "advantages"):
        filled_tensors[name] = filled_tensors[name] * ~fills[:, None]
    trained = tensors["response_mask"].sum(dim=1)
    rows = int((trained > 0).sum()) / n_ranks
    plan = Plan(
        tuple(sizes), tokens=int(trained.sum()) / n_ranks, rows=rows, rules=rules, only_pass=only_pass, cuts=cuts
    )
    data.meta_info = {**batch.meta_info, PLAN: plan}
    return data
