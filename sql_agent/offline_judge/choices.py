"""Which of two: whether an answer chooses, of two things that the question names, the one that the reference chooses.

Guarantees: pure functions on text in normal form, linear in it. The other thing may be told of where that is denied, or
set against the chosen one; a doubt, a denial of the chosen one and both chosen are no choice. Not covered: more than
two things.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from sql_agent.offline_judge.doubts import DENIALS, DOUBTS
from sql_agent.offline_judge.lexicon import spell, tokens
from sql_agent.offline_judge.normal import normalise
from sql_agent.offline_judge.sections import JOINT, PART_END, Cell
from sql_agent.offline_judge.slots import content, is_form

ASKS = re.compile(r"哪|\bwhich\b")
IS_IT = re.compile(r"^(?:is|was) it (?=.*\bor\b)")
OFFERS = re.compile(r"(?<![a-z])or(?![a-z])|还是")
ENDS = re.compile(r"[,;。.!?\n]|而(?!且)|\b(?:but|while|whereas)\b")
AGAINST = re.compile(r"比|不同于|相比|\b(?:unlike|than|instead of|rather than|against)\b")
MAX_NAME, MAX_WORDS = 3, 12  # tokens by which a thing is known, and of its whole name


class Choice(NamedTuple):
    """What tells the chosen thing, and the other; spelt. `words` are all of both names."""

    chosen: str
    other: str
    words: frozenset[str]


def choice(question: str, reference: str) -> Choice | None:
    """None where the question is none of two things, or the reference names none of them, or both."""
    question = IS_IT.sub("which, ", question)
    if not ASKS.search(question):
        return None
    for part in PART_END.split(question):
        joined = [one for one in JOINT.split(part) if tokens(one)]
        joined = [one for one in joined if not ASKS.search(one)] if len(joined) > 2 else joined
        joined = joined[-2:] if OFFERS.search(part) else joined
        if len(joined) == 2:
            first, second = (_name(one, joined[1 - n], from_end=n == 0) for n, one in enumerate(joined))
            said = [one in spell(reference) for one in (first, second)]
            if first.strip() and second.strip() and sum(said) == 1:
                words = frozenset(word for one in joined if len(tokens(one)) <= MAX_WORDS for word in content(one))
                words |= content(first) | content(second)
                return Choice(first, second, words) if said[0] else Choice(second, first, words)
    return None


def of_rows(question: str, cells: Sequence[Cell]) -> str:
    """What stands with the one cell that has what the question says of the thing, or in the only row; "" where none or
    several do."""
    rows: dict[str, list[str]] = {}
    for cell in cells:
        rows.setdefault(cell.row, []).append(normalise(cell.text))
    said = {row: [text for text in texts if spell(text) in spell(question)] for row, texts in rows.items()}
    most = max(map(len, said.values()), default=0)
    meant = [row for row, texts in said.items() if len(texts) == most]
    return "\n".join(said[meant[0]]) if len(meant) == 1 and (most > 1 or len(rows) == 1) else ""


def told(which: Choice, question: str, answer: str) -> bool | None:
    """Whether the answer says that it is the chosen one and not the other; None where it says neither, or doubts."""
    asked, chosen = {*DOUBTS.findall(question)}, set[bool]()
    is_denied = DENIALS.search(question) is not None  # which one has none?
    ours = content(question) - which.words
    for clause in ENDS.split(answer):
        said, theirs = spell(clause), content(clause) - which.words
        shared = {one for one in ours if any(is_form(other, one) for other in theirs)}
        says = 2 * len(shared) >= max(len(ours), len(theirs))
        turns = (DENIALS.search(clause) is not None) is not is_denied and bool(theirs)
        if which.other in said and not AGAINST.search(clause) and not turns and (says or not theirs):
            chosen.add(False)
        elif which.chosen in said and which.other not in said:
            if {*DOUBTS.findall(clause)} - asked:
                return None
            chosen.add(not turns)
    return chosen.pop() if len(chosen) == 1 else False if chosen else None


def without_other(which: Choice, answer: str) -> str:
    """An answer without the clauses that tell of the other thing alone."""
    ends = [0, *(end.end() for end in ENDS.finditer(answer)), len(answer)]
    clauses = [answer[a:b] for a, b in zip(ends, ends[1:], strict=False)]
    return "".join(one for one in clauses if which.other not in spell(one) or which.chosen in spell(one))


def _name(text: str, other: str, *, from_end: bool) -> str:
    """What tells one thing, next to the joint: no beginning or end that the other has too."""
    found = [one[0] for one in tokens(text)]
    size = MAX_NAME if not text.isascii() else len(found) if from_end and len(found) <= MAX_NAME else 1
    places = range(len(found), 0, -1) if from_end else range(len(found))
    names = (spell(" ".join(found[max(0, at - size) : at] if from_end else found[at : at + size])) for at in places)
    return next((name for name in names if name not in spell(other)), "")
