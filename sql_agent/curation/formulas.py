"""Courtesy that no list has: clauses at the edge of questions that the same file also asks without them.

Guarantees: a pure function of the texts. A clause of a formula stands at the same edge of at least two questions that
share no word and that the file asks in the same words without it, names no number, and has a polite word, one of asking
("newbie", "发帖") or a verb of saying, thinking or feeling ("my colleague insists that I ask"). Not covered: what no
mark divides from the question, a formula with a slip in it, and, against its sense, a condition with such a verb that
two questions share ("I was told to fast").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from sql_agent.curation.wording import MARKS, OF_ASKING, POLITE, POLITE_ZH, STOP, pieces, wording
from sql_agent.words.meanings import is_chinese_word, is_said

CLAUSE = re.compile(r"[^,.!?;:~…\n，。！？；：]*(?:[,.!?;:~…\n，。！？；：]+\s*|$)")
WORDS = re.compile(r"[a-z]+|[\u4e00-\u9fff]+")
BETWEEN = re.compile(r"(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])")
LINK = re.compile(r"^\s*(?:but|and|so)\b|(?<!\s)\s*\b(?:but|and|so)\s*$")
CLAUSES = 4  # at an edge
LEAST = 2  # questions that a formula stands beside
LONGEST_WORD = 4  # characters

Edge = tuple[str, bool]  # a clause's letters, and whether it stands before the question


def without_formulas(texts: Sequence[str]) -> list[str]:
    """The texts without the formulas at their edges."""
    by_letters = {_letters(text): text for text in texts}
    beside: dict[Edge, set[str]] = {}
    for text in texts:
        for clause, rest, is_before in _edges(text):
            if (bare := _letters(LINK.sub("", rest, count=1))) in by_letters and _says(clause):
                beside.setdefault((_letters(clause), is_before), set()).add(bare)
    formulas = {
        edge
        for edge, bare in beside.items()
        if edge[0] not in by_letters and _are_unlike(by_letters[letters] for letters in sorted(bare))
    }
    return [_without(text, formulas) for text in texts]


def _without(text: str, formulas: set[Edge]) -> str:
    for _ in range(CLAUSES):
        rests = (rest for clause, rest, before in _edges(text) if (_letters(clause), before) in formulas)
        if not (rest := next(filter(_letters, rests), "")):
            break
        text = LINK.sub("", rest, count=1)
    return text


def _edges(text: str) -> Iterator[tuple[str, str, bool]]:
    """What may be a formula, before the rest or behind it."""
    clauses = CLAUSE.findall(text.lower())[:-1]
    for n in range(1, min(len(clauses), CLAUSES + 1)):
        yield "".join(clauses[:n]), "".join(clauses[n:]), True
        yield "".join(clauses[-n:]), "".join(clauses[:-n]), False


def _letters(text: str) -> str:
    return "".join(re.findall(r"[^\W_]+", text.lower()))


def _are_unlike(questions: Iterable[str]) -> bool:
    """Whether enough of the questions share no word with one before."""
    seen: set[str] = set()
    n = 0
    for question in questions:
        words = _content(question)
        if seen.isdisjoint(words):
            seen |= words
            n += 1
            if n == LEAST:
                return True
    return False


def _content(question: str) -> set[str]:
    """Its words, but those of one character: any two Chinese questions may share one."""
    text = BETWEEN.sub("", " ".join(wording(question).plain))
    return {word for part in WORDS.findall(text) for word in _words(part) if len(word) > 1} - STOP


def _says(clause: str) -> bool:
    """Whether it says, thinks or feels something, speaks of asking or is polite, and names no number."""
    if re.search(r"\d", clause):
        return False
    words = {word for part in WORDS.findall(clause) for word in _words(part)}
    asks = (OF_ASKING.search(clause), POLITE.search(clause), re.search(POLITE_ZH, clause))
    return any(asks) or not MARKS.isdisjoint(words) or any(map(is_said, words))


def _words(part: str) -> Iterable[str]:
    """A Latin word, or Chinese words, the longest first."""
    return [part] if part.isascii() else pieces(part, is_chinese_word, longest=LONGEST_WORD)
