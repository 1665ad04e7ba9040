"""Wordings that nobody wrote, for demonstrations: those of training with words left out, others in their place, and
their parts in another order.

Four or five wordings of a kind are learned by heart: a value that stands elsewhere is not found then, and a new word
makes another query of it. So what stands around the placeholders becomes a frequent word of the language, or nothing;
the words that tell a kind from others (how many, the most) stay.
Guarantees: decided by `rng` alone; a word that only wordings held out have is never used. Not covered: sense.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from spellchecker import SpellChecker

from sql_agent.curation.frequency import frequent
from sql_agent.mining.asks import KINDS
from sql_agent.mining.questions import shown_wordings

# Kinds that their placeholders tell, or that list what others count: no word of theirs has to stay.
PLAIN = ("lookup", "lookup_two", "compare", "listed", "children", "parent", "since")
WORD = re.compile(r"[A-Za-z]+|[^\sA-Za-z]")
SLOT = re.compile(r"{\w+}")
PLACE = re.compile(r"([^{“]*)((?:“?{\w+}”?\s?)+)")  # words, and the placeholders behind them that belong together
IN_ORDER = (("{name}", "{second}"), ("{value}", "{second}"), ("{column}", "{other}"))  # as the query has them
N_ENGLISH = 1500  # words
CHINESE = 13  # words written 4,096 times in the corpus that they were counted in, some 2,000
TURNED, OPENED, ENDED = 0.5, 0.4, 0.3  # shares of wordings
LEFT_OUT, REPLACED, UNMARKED, BESIDE = 0.25, 0.3, 0.4, 0.15  # of words, marks and placeholders


@dataclass(frozen=True)
class Rewording:
    """Free wordings in one language."""

    language: str
    rng: random.Random

    def of(self, wording: str, kind: str) -> str:
        """A wording of training in other words, with its placeholders."""
        parts = [self._filler(OPENED, 4)]
        for before, slots in self._turned(PLACE.findall(wording)):
            parts += [*self._said(before, kind), slots.strip(), self._filler(BESIDE, 1)]
        parts += [*self._said(wording[wording.rindex("}") + 1 : -1].lstrip("”"), kind), self._filler(ENDED, 3)]
        return re.sub(r" (?=[,:])", "", self._blank.join(filter(None, parts))) + wording[-1]

    @property
    def _blank(self) -> str:
        return " " if self.language == "en" else ""

    def _turned(self, places: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """The places in another order, now and then and where the query does not tell theirs."""
        turned = self.rng.sample(places, len(places))
        slots = SLOT.findall("".join(slots for _, slots in turned))
        free = all(slots.index(first) < slots.index(last) for first, last in IN_ORDER if {first, last} <= {*slots})
        return turned if free and self.rng.random() < TURNED else places

    def _said(self, text: str, kind: str) -> Iterator[str]:
        """Words and marks of it, or others."""
        for word in WORD.findall(text):
            chance = self.rng.random()
            if word.lower() in telling(self.language, kind):
                yield word
            elif not word.isalnum():
                if chance >= UNMARKED:
                    yield word
            elif chance >= LEFT_OUT:
                yield self._filler(1, 1) if chance < LEFT_OUT + REPLACED else word

    def _filler(self, share: float, most: int) -> str:
        """Now and then so many words, or fewer."""
        n_words = self.rng.randint(1, most) if self.rng.random() < share else 0
        return self._blank.join(self.rng.choices(everyday(self.language), k=n_words))


def _words(wordings: Iterable[str]) -> set[str]:
    return {word.lower() for text in wordings for word in WORD.findall(SLOT.sub(" ", text))}


@cache
def telling(language: str, kind: str) -> frozenset[str]:
    """The words of a kind that tell it from the plain ones."""
    plain = (text for other in PLAIN for text in shown_wordings(language, other))
    return frozenset(_words(shown_wordings(language, kind)) - _words(plain) if kind not in PLAIN else ())


@cache
def everyday(language: str) -> list[str]:
    """Frequent words that tell no kind, none of which only wordings held out have."""
    shown, held = (
        {text for kind in KINDS for text in shown_wordings(language, kind, held=held)} for held in (False, True)
    )
    barred = (_words(held) - _words(shown)).union(*(telling(language, kind) for kind in KINDS))
    if language == "zh":
        return [word for word in frequent(CHINESE) if barred.isdisjoint(word)]
    counted = Counter(SpellChecker().word_frequency.dictionary).most_common(N_ENGLISH)
    return [word for word, _ in counted if word.isalpha() and (len(word) > 1 or word in "ai") and word not in barred]
