"""The random numbers of a run by name: what is drawn depends on what it is drawn for, never on when.

A rollout's seed follows from the run's seed, the step, the question and which of its copies it is; a call's from its
rollout's and its number in it; each token's uniform number from the call's and its place. Guarantees: the same in every
process, version of Python and order of arrival; another attempt at a rollout draws the same again. Calls that one
rollout makes at the same time are numbered as they are made.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator

TOP = 2**53  # a double holds each multiple of 1 / TOP below 1


def derived(*parts: int | str) -> int:
    """A seed of 63 bits, of which no two lists of parts share one but by chance."""
    named = "".join(f"{len(text)}:{text}" for text in map(str, parts))
    return int.from_bytes(hashlib.blake2b(named.encode("utf-8", "replace"), digest_size=8).digest()) >> 1


def rollout_seed(run: int, *, mode: str, step: int, question: str, copy: int) -> int:
    """The seed of a rollout. `copy` counts the rollouts of this question in the step, from 0."""
    return derived("rollout", run, mode, step, question, copy)


def call_seeds(rollout: int) -> Iterator[int]:
    """The seeds of a rollout's calls, one after the other."""
    return (derived("call", rollout, n) for n in itertools.count())


def uniform(seed: int, place: int) -> float:
    """The number in [0, 1) that draws the token at this place of a call."""
    hashed = hashlib.blake2b(b"%d:%d" % (seed, place), digest_size=8).digest()
    return (int.from_bytes(hashed) >> 11) / TOP
