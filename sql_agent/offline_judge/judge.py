"""The offline judge: which share of the asked facts does an answer quote, and does it say anything else?

    coverage = quoted facts / asked facts
    value    = 2 * coverage / (1 + coverage)     where nothing else is said (F1 with a precision of 1)
    value    < CAP                               where anything else is said, and less the more it is

A fact is quoted where it stands in the answer word for word (in the normal form). Free are names and words of question
and reference, marks of layout and the closed list of words.py. Everything else is foreign: the judge does not
understand it, and it may deny all the rest ("千万别当真："), so nothing beside it is trusted.

Guarantees: deterministic, value in [0, 1], linear in the answer's length, nothing is cut off. Text that quotes nothing
never raises the value, but for at most SAME_WORDS where it is in other words what nothing quotes; only an answer made
of the asked facts exceeds CAP. Not covered: rewording; whether the reference is right. An LLM judge sees the former.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from sql_agent.offline_judge.exam import Exam, make_exam
from sql_agent.offline_judge.lexicon import DENYING, foreign, pairs_of
from sql_agent.offline_judge.normal import normalise
from sql_agent.offline_judge.table import by_column

CAP = 0.25  # of an answer that says anything else
SAME_WORDS = 0.05  # the part of it that facts in other words can earn; no text that quotes nothing earns more
DENIED = 0.2  # and what is left of it where a sign of denial stands among the foreign text
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
        parts = [f"coverage {self.coverage:.2f}"]
        parts += [f"missing: {'；'.join(self.missing[:5])}"] if self.missing else []
        parts += [f"neither fact nor free: {'；'.join(self.foreign[:5])}"] if self.foreign else []
        return ", ".join(parts)


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
        self._text = by_column(_without(answer, exam.question), exam.names)
        known = []
        for start, end, word in exam.lexicon.find(self._text):
            known.append((start, end))
            self._read(word, self._text[end : end + 1])
        self._foreign += [self._text[start:end] for start, end in foreign(self._text, known, exam.asked)]

    def _read(self, word: str, following: str) -> None:
        exam = self._exam
        facts = exam.of_form.get(word, [])
        if word in exam.names and (not facts or following in ("的", ":")):
            self._named = exam.names[word]
        elif facts and not (word in exam.asked and following == "的"):
            self._quote(word, facts)
        elif not facts:
            self._rename(word)

    def _rename(self, word: str) -> None:
        """A label with a name in it names its sections as the name alone does."""
        for name, sections in self._exam.names.items():
            if name in word:
                self._named = sections

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
        for i in ahead[:1] or untold[:1]:
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
        facts = self._exam.facts
        n_quoted = sum(len(fact.forms[0]) for fact, credit in zip(facts, self._credit, strict=True) if credit)
        n_foreign = sum(map(len, self._foreign))
        said = pairs_of(self._text)
        alike = fmean(len(said & fact) / len(fact) for fact in map(pairs_of, (fact.forms[0] for fact in facts)))
        value = (CAP - SAME_WORDS) * _f1(coverage) * n_quoted / (n_quoted + n_foreign) + SAME_WORDS * alike
        return value * (DENIED if DENYING.search("".join(self._foreign)) else 1.0)


def _without(answer: str, question: str) -> str:
    """The answer without the question, word for word."""
    return answer.replace(f"{question}?", "\n").replace(question, "\n") if question else answer


def _f1(coverage: float) -> float:
    """F1 of this recall and a precision of 1: an answer that says nothing else says nothing wrong."""
    return 2 * coverage / (1 + coverage)
