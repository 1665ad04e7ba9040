"""A quote with another word in it: between two words on each side that a text has so, stands what it has not there.

What question or reference say may stand there, and what joins clauses, but no other number: it is how the thing is told
in other words.
Guarantees: pure functions on spelt text, linear in it. Not covered: what is left out, but a word that denies; other
words at the beginning or end of a quote.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from sql_agent.offline_judge.echoes import CLOSED
from sql_agent.offline_judge.lexicon import DENYING, spell

AROUND, MOST = 2, 4  # tokens on each side, and between
TELLING = "which that this these it reason reasons why rule advice note"  # whence, or why, what follows is
JOINING = frozenset(word for phrase in (*CLOSED, TELLING) for word in spell(phrase).split())
Run = tuple[str, ...]
Between = dict[tuple[Run, Run], set[Run]]  # what stands before and behind -> what may stand between


def between(texts: Iterable[str]) -> Between:
    """What stands between any words of these texts."""
    found = Between()
    for text in texts:
        for around, middle in _windows(text.split()):
            found.setdefault(around, set()).add(middle)
    return found


def is_misquoted(said: str, record: Between, known: Collection[str]) -> bool:
    """Whether a text exchanges words between others of the record; `known` are words that may stand for others."""
    return any(
        around in record and not any(_is_alike(middle, one, known) for one in record[around])
        for around, middle in _windows(said.split())
    )


def _is_alike(said: Run, own: Run, known: Collection[str]) -> bool:
    new, lost = ([one for one in some if one not in others] for some, others in ((said, own), (own, said)))
    if not new or not lost:  # words are added or left out, or in another order
        return not any(map(DENYING.fullmatch, (*new, *lost))) and not any(map(_is_number, new))
    return all((one in known or one in JOINING) and not _is_number(one) for one in new)


def _is_number(word: str) -> bool:
    return any(map(str.isdecimal, word))


def _windows(words: Sequence[str]) -> Iterator[tuple[tuple[Run, Run], Run]]:
    for start in range(AROUND, len(words)):
        before = tuple(words[start - AROUND : start])
        for end in range(start, min(start + MOST, len(words) - AROUND) + 1):
            yield (before, tuple(words[end : end + AROUND])), tuple(words[start:end])
