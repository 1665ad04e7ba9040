"""Finding known words in a text, the longest at each place from the left, and what is left over.

Guarantees: pure functions, linear in the text's length for a given lexicon. No word may cut a number or a Latin word
(3 in 13, 5 in 0.5); marks of `INSIDE` may part a word (每次15mg，每日1次; two cells of a table), but no number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

INSIDE = frozenset(";、|")
CUTS_BEFORE = re.compile(r"[\d.\-]$")
CUTS_AFTER = re.compile(r"[a-z0-9%]|[.\-]\d")
END = ""
# A run of the question's characters is free from two on; one with a sign of denial, 除了 for example, from four on.
MIN_RUN_CHARS, MIN_DENYING_RUN_CHARS = 2, 4
DENYING = re.compile(r"[不无非未没勿莫否除]")
LAYOUT = frozenset(";,、。:\n|.-–—…·•/! ")


class Lexicon:
    """A set of words as a tree of characters."""

    def __init__(self, words: Iterable[str]) -> None:
        self._root: dict[str, Any] = {}
        for word in words:
            node = self._root
            for char in word:
                node = node.setdefault(char, {})
            if word:
                node[END] = word

    def find(self, text: str) -> Iterator[tuple[int, int, str]]:
        """(start, end, word) of each word that is found."""
        start = 0
        while start < len(text):
            end, word = self._longest(text, start)
            if word:
                yield start, end, word
            start = max(end, start + 1)

    def _longest(self, text: str, start: int) -> tuple[int, str]:
        node, best, i = self._root, (start, ""), start
        while i < len(text):
            if text[i] in INSIDE and text[i] not in node and i > start and not text[i - 1 : i + 2 : 2].isdecimal():
                i += 1
                continue
            node = node.get(text[i])
            if node is None:
                break
            i += 1
            if END in node and _is_whole(text, start, i):
                best = (i, node[END])
        return best


def _is_whole(text: str, start: int, end: int) -> bool:
    """False when text[start:end] cuts a number or a Latin word in two."""
    before, first, last = text[max(0, start - 1) : start], text[start], text[end - 1]
    if first.isdecimal() and re.match(r"[\d.\-a-z]", before):
        return False
    if first.isascii() and first.isalpha() and re.match(r"[a-z0-9]", before):
        return False
    return not (last.isascii() and last.isalnum() and CUTS_AFTER.match(text, end))


def pairs_of(text: str) -> set[str]:
    """Its neighbouring characters, two by two; a single character stands for itself."""
    return {text[i : i + 2] for i in range(max(1, len(text) - 1))}


def foreign(text: str, known: Iterable[tuple[int, int]], question: str) -> list[tuple[int, int]]:
    """The runs (start, end) of `text` outside the spans `known` and outside of runs of the question."""
    free = bytearray(len(text))
    for start, end in known:
        free[start:end] = b"1" * (end - start)
    for start, char in enumerate(text):
        if char in LAYOUT:
            free[start] = 1
        n = longest_run(text, start, question)
        if n >= (MIN_DENYING_RUN_CHARS if DENYING.search(text, start, start + n) else MIN_RUN_CHARS):
            free[start : start + n] = b"1" * n
    return [match.span() for match in re.finditer(rb"\0+", free)]


def longest_run(text: str, start: int, question: str) -> int:
    """How many characters of `text` from `start` on stand in the question, beside one another."""
    n = 0
    while start + n < len(text) and text[start : start + n + 1] in question:
        n += 1
    return n
