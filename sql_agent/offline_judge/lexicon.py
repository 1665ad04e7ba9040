"""Finding known words in a text, the longest at each place from the left, and what is left over.

Guarantees: linear in the text's length for a given lexicon. No word may cut a number or a Latin word
(3 in 13, 5 in 0.5); marks of `INSIDE` may part a word (每次15mg，每日1次; two cells of a table), but no number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

INSIDE = frozenset(";、|")
CUT_BEFORE = re.compile(r"[\d.\-a-z]\d|[a-z0-9][a-z]")  # between these two characters
CUTS_AFTER = re.compile(r"[a-z0-9%]|[.\-]\d")
END = ""
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

    def unknown(self, text: str, also: Lexicon) -> list[tuple[int, int]]:
        """The runs (start, end) of the text that are neither words, nor parts of `also` at any place, nor layout."""
        known = bytearray(char in LAYOUT for char in text)
        echoes = ((start, *also._longest(text, start)) for start in range(len(text)))
        for start, end, _ in (*self.find(text), *echoes):
            known[start:end] = b"\1" * (end - start)
        return [match.span() for match in re.finditer(rb"\0+", known)]

    def core(self, text: str, also: Lexicon) -> str:
        """The text without the words at its ends."""
        left = self.unknown(text, also)
        return text[left[0][0] : left[-1][1]] if left else ""

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
    cut_after = text[end - 1].isascii() and text[end - 1].isalnum() and CUTS_AFTER.match(text, end)
    return not (cut_after or CUT_BEFORE.fullmatch(text, max(0, start - 1), start + 1))


def pairs_of(text: str) -> set[str]:
    """Its neighbouring characters, two by two; a single character stands for itself."""
    return {text[i : i + 2] for i in range(max(1, len(text) - 1))}


def stands_in(text: str, part: str) -> bool:
    """True when the text has the part, and no number or Latin word is cut by it."""
    starts = (match.start() for match in re.finditer(f"(?={re.escape(part)})", text))
    return any(_is_whole(text, start, start + len(part)) for start in starts)


def longest_run(text: str, start: int, question: str) -> int:
    """How many characters of `text` from `start` on stand in the question, beside one another."""
    ends = range(start + 1, len(text) + 1)
    return next((end - 1 - start for end in ends if text[start:end] not in question), len(text) - start)
