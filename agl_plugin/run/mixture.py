"""Which question comes next: a permutation per pass over a file, and the files in turn by their weights.

Guarantees: order(...) is made of its arguments and of nothing else, so a run that goes on sees what it would have seen;
one file is passed once per epoch. Of several files each has its share (weight / sum of weights) of every stretch of
places, to within one place or so; an epoch has as many places as all files have questions, and a file of which it
takes fewer or more goes on in the next epoch where it was left, so that no question comes twice before all came once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence


def order(files: Sequence[int], weights: Sequence[float], *, seed: object, epoch: int) -> list[int]:
    """The questions of an epoch, as places in `files`, which says the file of each; no `weights`: one file."""
    if not weights:
        return _shuffled(list(range(len(files))), f"{seed}/{epoch}")
    rows = [[n for n, file in enumerate(files) if file == number] for number in range(len(weights))]
    turns = _turns(len(files), [weight if of else 0.0 for weight, of in zip(weights, rows, strict=True)])
    return _taken(turns, rows, seed=seed, epoch=epoch)


def _taken(turns: Sequence[int], rows: Sequence[list[int]], *, seed: object, epoch: int) -> list[int]:
    """A question for each turn, from where the epochs before left its file."""
    taken = [epoch * turns.count(number) for number in range(len(rows))]
    passes: dict[tuple[int, int], list[int]] = {}
    found = []
    for number in turns:
        n_pass, at = divmod(taken[number], len(rows[number]))
        if (number, n_pass) not in passes:
            passes[number, n_pass] = _shuffled(rows[number], f"{seed}/{number}/{n_pass}")
        found.append(passes[number, n_pass][at])
        taken[number] += 1
    return found


def _turns(n: int, weights: Sequence[float]) -> list[int]:
    """Whose turn it is at each of `n` places: that of the file which is most behind its share."""
    whole, behind, turns = sum(weights), [0.0] * len(weights), []
    for _ in range(n):
        behind = [late + weight / whole for late, weight in zip(behind, weights, strict=True)]
        turns.append(max(range(len(weights)), key=lambda number: round(behind[number], 9)))
        behind[turns[-1]] -= 1
    return turns


def _shuffled(numbers: Sequence[int], seed: str) -> list[int]:
    shuffled = list(numbers)
    random.Random(seed).shuffle(shuffled)
    return shuffled
