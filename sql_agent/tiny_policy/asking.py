"""How demonstrations ask: training phrasings, and free variations of them that no dataset holds.

Thirteen phrasings would be learned by heart: then a name that stands elsewhere is not found. So most questions keep
what matters (names, labels, the word that tells counting from searching) and put made-up filler of common characters
around it, in any order. Phrasings of validation and test are never read here.
"""

from __future__ import annotations

import random
import re

from sql_agent.tiny_policy.corpus import COMMON, Corpus

MARKS = "，，，：、？"
SEARCH_WORDS = ["哪些药", "什么药", "哪些药品", "哪几种药", "所有药品", "药品有哪些", "药是哪些", "列出药品"]
COUNT_WORDS = ["多少种", "几种药", "数量", "总数", "几个药", "多少药品", "药品数目", "合计几种", "总共多少"]
PLACEHOLDER = re.compile(r"{\w+}")


class Asker:
    """Makes question templates of an intent, with the placeholders of templates.yaml."""

    def __init__(self, corpus: Corpus, rng: random.Random, *, free_share: float) -> None:
        self._corpus = corpus
        self._rng = rng
        self._free_share = free_share

    def ask(self, intent: str, *, field: str = "", n_fields: int = 1) -> str:
        """A template of the intent for this field or this many fields."""
        fitting = [
            phrasing.text
            for phrasing in self._corpus.phrasings[intent]
            if phrasing.n_fields == n_fields and (not phrasing.fields or field in phrasing.fields)
        ]
        text = self._rng.choice(fitting)
        if self._rng.random() >= self._free_share:
            return text
        return self._framed(text) if self._rng.random() < 0.4 else self._scattered(intent, text)

    def label(self, label: str) -> str:
        """A label as people vary it: now and then a character is missing, or a common one too many."""
        chance = self._rng.random()
        at = self._rng.randrange(len(label))
        if chance < 0.1 and len(label) > 3:
            return label[:at] + label[at + 1 :]
        if chance < 0.25:
            return label[:at] + self._filler(1, 2) + label[at:]
        return label

    def _filler(self, least: int, most: int) -> str:
        return "".join(self._rng.choices(COMMON, k=self._rng.randint(least, most)))

    def _framed(self, text: str) -> str:
        """A training phrasing between fillers."""
        before = self._filler(1, 6) + self._rng.choice(["，", "", ""])
        after = self._rng.choice(["，", ""]) + self._filler(1, 5) + self._rng.choice("？。")
        return (before if self._rng.random() < 0.7 else "") + (
            text.rstrip("？。") + after if self._rng.random() < 0.6 else text
        )

    def _scattered(self, intent: str, text: str) -> str:
        """The placeholders of a phrasing in filler; names keep their order, and so do fields."""
        slots = PLACEHOLDER.findall(text)
        groups = [
            [s for s in slots if "name" in s],
            [s for s in slots if "field" in s],
            [s for s in slots if "value" in s],
        ]
        groups = [group for group in groups if group]
        if intent in ("search", "count"):
            groups.append([self._rng.choice(SEARCH_WORDS if intent == "search" else COUNT_WORDS)])
        self._rng.shuffle(groups)
        pieces = ["".join(self._joined(group)) for group in groups]
        between = [self._rng.choice(["的", self._filler(1, 3), self._filler(1, 3) + self._mark()]) for _ in pieces]
        body = "".join(piece + gap for piece, gap in zip(pieces, between, strict=True)).rstrip("，、：")
        opening = self._filler(1, 6) + self._mark() if self._rng.random() < 0.6 else ""
        return opening + body + self._rng.choice(["", self._filler(1, 4)]) + self._rng.choice("？。？。")

    def _joined(self, group: list[str]) -> list[str]:
        """Slots of one kind with something that tells them apart."""
        parts = group[:1]
        for slot in group[1:]:
            parts += [
                self._rng.choice(["、", "和", "与", "跟", "以及", "，" + self._filler(1, 3), self._filler(1, 2)]),
                slot,
            ]
        return parts

    def _mark(self) -> str:
        return self._rng.choice(["", *MARKS[:4]])
