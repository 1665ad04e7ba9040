"""The offline judge: which share of the asked facts does an answer quote, and does it say anything else?

    coverage = quoted facts / asked facts
    value    = 2 * coverage / (1 + coverage)     where nothing else is said (F1 with a precision of 1)
    value    < CAP                               where anything else is said, and less the more it is

A fact is quoted where it stands in the answer word for word (in the normal form). What is neither fact nor free
(exam.py) is foreign: it may deny all the rest ("千万别当真："), so nothing beside it is trusted.

Guarantees: deterministic, value in [0, 1], linear in the answer's length, nothing is cut off. Text that states nothing
asked, quoted or in part, never raises the value; only an answer of asked facts and free words exceeds CAP. Not covered:
rewording (at most SAME_WORDS); whether the reference is right.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest

from sql_agent.offline_judge.exam import Exam, make_exam
from sql_agent.offline_judge.lexicon import DENYING, pairs_of
from sql_agent.offline_judge.normal import normalise

CAP = 0.25  # of an answer that says anything else
SAME_WORDS = 0.1  # the part of it that facts in other words can earn; no text that quotes nothing earns more
DENIED = 0.05  # and what is left of it where a sign of denial stands among the foreign text
FREE_MENTIONS = 2  # a summary may repeat what was said
IN_ORDER, OUT_OF_ORDER = 0.9, 0.5  # credit of facts of several things where none is named


@dataclass(frozen=True)
class ReferenceVerdict:
    """`coverage` is the share of the facts that is quoted; what was missing, and what else was said."""

    value: float
    coverage: float
    missing: list[str]
    foreign: list[str]

    @property
    def explanation(self) -> str:
        """One line for people."""
        found = {"missing": self.missing, "neither fact nor free": self.foreign}
        return ", ".join(
            [f"coverage {self.coverage:.2f}", *(f"{k}: {'；'.join(v[:5])}" for k, v in found.items() if v)]
        )


def grade(*, question: str, reference: str, answer: str, evidence: Sequence[str] = ()) -> ReferenceVerdict | None:
    """Compare `answer` with the facts; None where reference and evidence hold no fact to compare with."""
    exam = make_exam(question, reference, tuple(evidence))
    return _Reading(exam, normalise(answer)).verdict() if exam else None


class _Reading:
    """Reads an answer word by word and keeps the books."""

    def __init__(self, exam: Exam, answer: str) -> None:
        self._exam = exam
        self._credit = [0.0] * len(exam.facts)
        self._foreign: list[str] = []
        self._mentions: Counter[tuple[str, frozenset[int] | None]] = Counter()
        self._named: frozenset[int] | None = None  # the sections whose name came last
        self._section = 0  # as far as facts without a name came
        asked = re.compile(f"{re.escape(exam.question)}\\??")
        self._text = by_column(asked.sub("\n", answer) if exam.question else answer, exam.names)
        for _, end, word in exam.lexicon.find(self._text):
            self._read(word, self._text[end : end + 1])
        self._foreign += [self._text[start:end] for start, end in exam.lexicon.unknown(self._text, exam.echoes)]

    def _read(self, word: str, following: str) -> None:
        exam = self._exam
        facts = exam.of_form.get(word, [])
        is_owner = following == "的" and word in exam.question or following == ":" and word in exam.names
        if facts and not is_owner:
            return self._quote(word, facts)
        for name in [word] if word in exam.names else exam.names:  # a label names what a name in it names
            if name in word:
                self._named = exam.names[name]

    def _quote(self, word: str, facts: Sequence[int]) -> None:
        self._mentions[word, self._named] += 1
        mine = [i for i in facts if self._named is None or self._exam.facts[i].section in self._named]
        if not mine or self._mentions[word, self._named] > FREE_MENTIONS * max(1, len(facts)):
            self._foreign.append(word)
        elif self._named is None and self._exam.names:
            self._quote_unnamed(mine)
        else:
            for i in mine:
                self._credit[i] = 1.0

    def _quote_unnamed(self, facts: Sequence[int]) -> None:
        """Facts of several things without a name: as they are asked for, one after the other, or anyhow."""
        untold = [i for i in facts if not self._credit[i]]
        ahead = [i for i in untold if self._exam.facts[i].section >= self._section]
        for i in (ahead or untold)[:1]:
            self._section = max(self._section, self._exam.facts[i].section)
            self._credit[i] = IN_ORDER if ahead else OUT_OF_ORDER

    def verdict(self) -> ReferenceVerdict:
        facts = self._exam.facts
        coverage = sum(self._credit) / len(facts)
        value = _f1(coverage) if not self._foreign else self._distrusted(coverage)
        missing = [fact.forms[0] for fact, credit in zip(facts, self._credit, strict=True) if not credit]
        return ReferenceVerdict(value, coverage, missing, list(dict.fromkeys(self._foreign)))

    def _distrusted(self, coverage: float) -> float:
        """The value of an answer that also says what nothing explains: in what order of trust, below CAP."""
        first = [fact.forms[0] for fact in self._exam.facts]
        n_quoted = sum(len(form) for form, credit in zip(first, self._credit, strict=True) if credit)
        trust = _f1(coverage) * n_quoted / (n_quoted + sum(map(len, self._foreign)))
        said, asked = pairs_of(self._text), set().union(*map(pairs_of, first))
        alike = 2 * len(said & asked) / (len(said) + len(asked))
        value = (CAP - SAME_WORDS) * trust + SAME_WORDS * alike
        value *= DENIED if DENYING.search("".join(self._foreign)) else 1.0
        return min(value, _f1(coverage) or SAME_WORDS)


def _f1(coverage: float) -> float:
    """F1 of this recall and a precision of 1: an answer that says nothing else says nothing wrong."""
    return 2 * coverage / (1 + coverage)


def by_column(text: str, names: Collection[str]) -> str:
    """`text` with each Markdown table that has names in two columns of its header told column by column."""
    lines: list[str] = []
    for is_table, block in groupby(text.split("\n"), lambda line: "|" in line):
        rows = [line.split("|") for line in block]
        if is_table and sum(any(name in cell for name in names) for cell in rows[0]) > 1:
            lines += [cell for column in zip_longest(*rows, fillvalue="") for cell in column]
        else:
            lines += ["|".join(row) for row in rows]
    return "\n".join(lines)
