"""One item of an answer as the offline judge reads it: what supports it, and lists whose members belong together.

Guarantees: pure functions on normalised text, linear in its length. Not covered: what an answer is
worth (judge.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sql_agent.offline_judge.exam import HALF, Phrase
from sql_agent.offline_judge.normal import HAN
from sql_agent.offline_judge.text import FUNCTION, NEGATOR, content, cover, denies, share, tokens, weight

NAME_WEIGHT = 6  # up to this weight a fact is a name: it must stand free, and a near miss earns at most HALF
RECALL_RAMP = (0.3, 0.9)  # share of a fact's words that earns 0 and 1
COUNTED_WEIGHT = 3  # unexplained text of this weight beside a count may be what is counted
SUPPORT_RAMP = (0.4, 0.8)  # share of a claim's words, found in one phrase, that counts 0 and 1

PREDICATE_NOT = re.compile(r"\b(?:is|are|was|were|do|does|did|can|could|should|has|have)(?: not\b|n't)|\bcannot\b")
AMOUNT = re.compile(r"(?<![\d.])\d{1,9}(?:\.\d{1,9})?(?:°c|[a-zμ%]{1,3})")
AMOUNTS = re.compile(rf"{AMOUNT.pattern}(?:\s*(?:、或?|或者?|\bor\b)\s*{AMOUNT.pattern})+")


@dataclass
class Item:
    """One item of a clause: `masked` keeps only unexplained text, `free` all but the exact phrases.

    `spans`: each exact phrase, and whether a negator stands right before it. `support`: how far one phrase, `nearest`,
    supports the unexplained text, in [0, 1].
    """

    text: str
    spans: list[tuple[str, bool]]
    masked: str
    free: str
    support: float = 0.0
    nearest: str = ""

    @property
    def weight(self) -> int:
        """Weight of the unexplained text; a bare negator is no claim."""
        return weight(word for word in tokens(NEGATOR.sub(" ", self.masked)) if word not in FUNCTION)

    @property
    def denies(self) -> bool:
        """True when text that no phrase explains negates."""
        return self.support < HALF and denies(self.masked)


def is_bare(clause: str, found: Sequence[Item]) -> bool:
    """True for a further member of an English list, phrases and nothing else: "safe in A, B" is said of B too."""
    return not re.search(HAN, clause) and all(item.weight < 2 for item in found)


def counts_else(fact: Phrase, item: Item) -> bool:
    """True when a count stands beside words that nothing explains: it may be the count of something else."""
    return fact.core.isdecimal() and item.weight >= COUNTED_WEIGHT


def ramp(value: float, limits: tuple[float, float]) -> float:
    """`value` on a scale on which `limits` are 0 and 1, cut there."""
    low, high = limits
    return min(1.0, max(0.0, (value - low) / (high - low)))


def support_of(claim: str, phrase: str, *, asked: str) -> float:
    """How far a phrase of reference or evidence supports the unexplained text of a claim, in [0, 1]."""
    if weight(tokens(phrase)) <= NAME_WEIGHT:  # each character of a name counts
        moved = _is_moved(tokens(phrase), tokens(claim))
        return 1.0 if moved else ramp(share(tokens(claim), tokens(phrase)), SUPPORT_RAMP)
    return ramp(cover(content(claim), content(phrase, asked)), SUPPORT_RAMP)


def _is_moved(name: Sequence[str], said: Sequence[str]) -> bool:
    """True when what is said is the name with its parts in another order."""
    return cover(name, said) == cover(said, name) == 1.0


def likeness_of_name(name: str, said: str, unexplained: str) -> float:
    """Credit in [0, 1] for what resembles a short fact: each character of a name counts, so HALF at most.

    1 where the claim is the fact with its parts in another order.
    """
    ours, words = tokens(name), tokens(said)
    if _is_moved(ours, words):
        return 1.0
    near = max(share(ours, words), share(words, ours), share(tokens(unexplained), ours)) >= HALF
    return min(HALF, ramp(share(ours, words), RECALL_RAMP)) if near else 0.0


def amounts(text: str) -> set[str]:
    """The numbers of `text` that have a unit, with it."""
    return {match[0] for match in AMOUNT.finditer(text)}


def amounts_to_choose_from(answer: str, *, known: set[str]) -> set[str]:
    """The amounts that stand among alternatives ("2.5mg、5mg或10mg") of which at least one is not `known`."""
    runs = [amounts(run[0]) for run in AMOUNTS.finditer(answer)]
    return set().union(*(run for run in runs if run - known))
