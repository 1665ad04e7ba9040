"""One item of an answer as the offline judge reads it, and lists whose members share a verb or exclude one another.

Guarantees: pure functions on normalised text, linear in its length. Not covered: what an item is worth
(reference_judge.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sql_agent.reference_exam import HALF
from sql_agent.reference_normal import HAN
from sql_agent.reference_text import FUNCTION, NEGATOR, denies, tokens, weight

PREDICATE_NOT = re.compile(r"\b(?:is|are|was|were|do|does|did|can|could|should|has|have)(?: not\b|n't)|\bcannot\b")
AMOUNT = re.compile(r"\d+(?:\.\d+)?(?:°c|[a-zμ%]{1,3})")
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


def amounts(text: str) -> set[str]:
    """The numbers of `text` that have a unit, with it."""
    return {match[0] for match in AMOUNT.finditer(text)}


def amounts_to_choose_from(answer: str, *, known: set[str]) -> set[str]:
    """The amounts that stand among alternatives ("2.5mg、5mg或10mg") of which at least one is not `known`."""
    runs = [amounts(run[0]) for run in AMOUNTS.finditer(answer)]
    return set().union(*(run for run in runs if run - known))
