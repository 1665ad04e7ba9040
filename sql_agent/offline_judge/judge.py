"""The offline judge: which share of the asked facts does an answer quote, and does it say anything else?

    coverage = quoted facts / asked facts
    value    = 2 * coverage / (1 + coverage)     where nothing else is said (F1 with a precision of 1)
    value    < CAP                               where anything else is said, and less the more it is

A fact is quoted where it stands in the answer word for word (in the normal form). What is neither fact nor free
(exam.py) is foreign: it may deny all the rest ("千万别当真："), so nothing beside it is trusted.
Guarantees: deterministic, value in [0, 1], linear in the answer's length, nothing is cut off. Text that states nothing
asked, quoted or in part, never raises the value. Not covered: rewording; whether the reference is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest

from sql_agent.offline_judge.exam import CLAUSE_END, Exam, Fact, make_exam
from sql_agent.offline_judge.lexicon import DENYING, pairs_of
from sql_agent.offline_judge.normal import normalise

CAP, SAME_WORDS = 0.25, 0.1  # an answer that says anything else earns less than CAP; without a quote at most the other
DENIED = 0.05  # what is left of that where it quotes facts and a sign of denial stands among the foreign text
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
        missing, foreign = "；".join(self.missing[:5]), "；".join(self.foreign[:5])
        told = f"coverage {self.coverage:.2f}, missing: {missing or '-'}, neither fact nor free: {foreign or '-'}"
        return f"{told}; value {self.value:.2f}{self._why}"

    @property
    def _why(self) -> str:
        """Where a value comes from that the coverage alone does not give."""
        if not self.foreign:
            return ""
        if not self.coverage:
            return f" for words that the facts have too (at most {SAME_WORDS})"
        return f" because of what else was said (below {CAP})"


def grade(*, question: str, reference: str, answer: str, evidence: Sequence[str] = ()) -> ReferenceVerdict | None:
    """Compare `answer` with the facts; None where reference and evidence hold no fact to compare with."""
    exam = make_exam(question, reference, tuple(evidence))
    return _Reading(exam, normalise(answer)).verdict() if exam else None


class _Reading:
    """Reads an answer word by word and keeps the books."""

    def __init__(self, exam: Exam, answer: str) -> None:
        self._exam = exam
        self._credit: dict[int, float] = {}  # of facts quoted
        self._foreign: list[str] = []
        self._mentions: Counter[tuple[str, frozenset[int] | None]] = Counter()
        self._named: frozenset[int] | None = None  # the sections whose name came last
        self._text = by_column(answer, exam.names)
        words, unknown = exam.lexicon.read(self._text, exam.echoes)
        for end, word in words:
            self._read(word, self._text[end : end + 1])
        self._foreign += [self._text[start:end] for start, end in unknown]

    def _read(self, word: str, following: str) -> None:
        exam = self._exam
        is_owner = following in ("的", ":") and word in exam.question
        if not is_owner and word in exam.of_form:
            return self._quote(word, exam.of_form[word])
        name = max((name for name in exam.names if name in word), key=len, default="")
        if name and exam.question not in word:  # a label names what a name in it names; the question again names nobody
            self._named = exam.names[name]

    def _quote(self, word: str, facts: Sequence[int]) -> None:
        self._mentions[word, self._named] += 1
        mine = [i for i in facts if self._named is None or self._exam.facts[i].section in self._named]
        if not mine or self._mentions[word, self._named] > FREE_MENTIONS * len(facts):
            self._foreign.append(word)
        elif self._named is None and self._exam.names:
            self._quote_unnamed(mine)
        else:
            self._credit |= dict.fromkeys(mine, 1.0)

    def _quote_unnamed(self, facts: Sequence[int]) -> None:
        """Facts of several things without a name: as they are asked for, one after the other, or anyhow."""
        untold = [i for i in facts if i not in self._credit]
        reached = max((self._exam.facts[i].section for i in self._credit), default=0)
        ahead = [i for i in untold if self._exam.facts[i].section >= reached]
        for i in (ahead or untold)[:1]:
            self._credit[i] = IN_ORDER if ahead else OUT_OF_ORDER

    def verdict(self) -> ReferenceVerdict:
        facts = self._exam.facts
        coverage = sum(self._credit.values()) / len(facts)
        value = _f1(coverage) if not self._foreign else self._distrusted(coverage)
        missing = [fact.forms[0] for i, fact in enumerate(facts) if i not in self._credit]
        return ReferenceVerdict(value, coverage, missing, list(dict.fromkeys(self._foreign)))

    def _distrusted(self, coverage: float) -> float:
        """The value of an answer that also says what nothing explains."""
        quoted = sum(len(self._exam.facts[i].forms[0]) for i in self._credit)
        trust = _f1(coverage) * quoted / (quoted + sum(map(len, self._foreign)))
        value = (CAP - SAME_WORDS) * trust + SAME_WORDS * likeness(self._text, self._exam.facts)
        value *= DENIED if coverage and DENYING.search("".join(self._foreign)) else 1.0
        return min(value, _f1(coverage) or SAME_WORDS)


def likeness(text: str, facts: Sequence[Fact]) -> float:
    """The share of neighbouring characters in common; a clause that denies has none."""
    asked = pairs_of(*(fact.forms[0] for fact in facts))
    said = pairs_of(*(clause for clause in CLAUSE_END.split(text) if not DENYING.search(clause)))
    return 2 * (said & asked).total() / (pairs_of(text) + asked).total()


def _f1(coverage: float) -> float:
    """F1 of this recall and a precision of 1: an answer that says nothing else says nothing wrong."""
    return 2 * coverage / (1 + coverage)


def by_column(text: str, names: Collection[str]) -> str:
    """`text` with each Markdown table that has names in two columns of its header told column by column."""
    lines: list[str] = []
    for _, block in groupby(text.split("\n"), lambda line: "|" in line):
        rows, joint = [tuple(line.split("|")) for line in block], "|"
        if sum(any(name in cell for name in names) for cell in rows[0]) > 1:
            rows, joint = list(zip_longest(*rows, fillvalue="")), "\n"
        lines += [joint.join(row) for row in rows]
    return "\n".join(lines)
