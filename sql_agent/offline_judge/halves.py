"""Facts that an answer tells in two halves, a label and the rest or an item of it: "Flowering: June to July" for
"flowering June to July".

Guarantees: linear in the answer for given facts; no word is added or left out but words of grammar. Not covered: labels
of one answer after the first `MAX_LABELS` different ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sql_agent.offline_judge.lexicon import GRAMMAR, spell
from sql_agent.offline_judge.normal import normalise

HALVES = re.compile(r"(?<![^\n|;。])(?P<label>[^\n|:;。]{1,40})[:|](?P<rest>[^\n|;。]{1,200})(?=[\n|;。]|$)")
MAX_LABELS = 100
Words = tuple[str, ...]


def bare(facts: Iterable[str]) -> dict[str, Words]:
    """The words of each fact (spelt), without those of grammar."""
    return {fact: _bare(fact) for fact in facts}


class Halves:
    """The facts without the words of labels, for one answer."""

    def __init__(self, facts: dict[str, Words]) -> None:
        self._facts = facts
        self._left: dict[str, dict[Words, str]] = {}  # label -> what it leaves of facts -> the facts

    def whole(self, label: str, rest: str) -> str:
        """The fact that a label and the rest tell together, in normal form; empty where there is none."""
        return self._without(normalise(label)).get(_bare(spell(normalise(rest))), "").strip()

    def joined(self, text: str) -> str:
        """A text in normal form with such facts in one piece behind their labels."""

        def told(found: re.Match[str]) -> str:
            if spell(found["rest"]) in self._facts:
                return found[0]
            if fact := self.whole(found["label"], found["rest"]):
                return f"{found['label']}:{fact}"
            parts = found["rest"].split("、")
            told = [part if spell(part) in self._facts else self.whole(found["label"], part) or part for part in parts]
            return f"{found['label']}:{'、'.join(told)}" if told != parts else found[0]

        return HALVES.sub(told, text)

    def _without(self, label: str) -> dict[Words, str]:
        if label not in self._left and len(self._left) < MAX_LABELS:
            own = {*spell(label).split()}
            left = {tuple(one for one in words if one not in own): fact for fact, words in self._facts.items()}
            self._left[label] = {rest: fact for rest, fact in left.items() if 0 < len(rest) < len(self._facts[fact])}
        return self._left.get(label, {})


def _bare(text: str) -> Words:
    return tuple(GRAMMAR.sub("", text).split())
