"""Which of two: whether an answer chooses, of two things that the question names, the one that the reference chooses.

Guarantees: pure functions on text in normal form, linear in it. The other thing may be told of where that is denied, or
set against the chosen one; a doubt, a denial of the chosen one and both chosen are no choice. Not covered: more than
two things; one whose name begins or ends as the other's does.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sql_agent.offline_judge.doubts import DENIALS, DOUBTS
from sql_agent.offline_judge.lexicon import spell, tokens
from sql_agent.offline_judge.sections import JOINT, PART_END

ASKS = re.compile(r"哪|\bwhich\b")
ENDS = re.compile(r"[,;。.!?\n]|而(?!且)|\b(?:but|while|whereas)\b")
AGAINST = re.compile(r"比|不同于|相比|\b(?:unlike|than|instead of|rather than|against)\b")
MAX_NAME = 3  # tokens by which a thing is known


class Choice(NamedTuple):
    """What tells the chosen thing, and the other; spelt."""

    chosen: str
    other: str


def choice(question: str, reference: str) -> Choice | None:
    """None where the question is none of two things, or the reference names none of them, or both."""
    if not ASKS.search(question):
        return None
    for part in PART_END.split(question):
        joined = [one for one in JOINT.split(part) if tokens(one)]
        joined = [one for one in joined if not ASKS.search(one)] if len(joined) > 2 else joined
        if len(joined) == 2:
            first, second = (_name(one, from_end=n == 0) for n, one in enumerate(joined))
            said = [one in spell(reference) for one in (first, second)]
            if first not in spell(joined[1]) and second not in spell(joined[0]) and sum(said) == 1:
                return Choice(first, second) if said[0] else Choice(second, first)
    return None


def is_chosen(which: Choice, question: str, answer: str) -> bool:
    """Whether the answer says that it is the chosen one, and says nothing for the other."""
    asked, is_told = {*DOUBTS.findall(question)} | {*DENIALS.findall(question)}, False
    for clause in ENDS.split(answer):
        said = spell(clause)
        denies = bool({*DENIALS.findall(clause)} - asked)
        if which.other in said and not (denies or AGAINST.search(clause)):
            return False
        if which.chosen in said and which.other not in said:
            if denies or {*DOUBTS.findall(clause)} - asked:
                return False
            is_told = True
    return is_told


def without_other(which: Choice, answer: str) -> str:
    """An answer without the clauses that tell of the other thing alone."""
    ends = [0, *(end.end() for end in ENDS.finditer(answer)), len(answer)]
    clauses = [answer[a:b] for a, b in zip(ends, ends[1:], strict=False)]
    return "".join(one for one in clauses if which.other not in spell(one) or which.chosen in spell(one))


def _name(text: str, *, from_end: bool) -> str:
    found = [one[0] for one in tokens(text)]
    size = MAX_NAME if not text.isascii() else len(found) if from_end and len(found) <= MAX_NAME else 1
    return spell(" ".join(found[-size:] if from_end else found[:size]))
