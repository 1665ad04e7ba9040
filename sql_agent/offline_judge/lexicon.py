"""Finding known words in a text, the longest at each place from the left, and what is left over.

Guarantees: linear in the text's length for a given lexicon. No word may cut a number or a Latin word
(3 in 13, 5 in 0.5); marks of `INSIDE` may part a word (每次15mg，每日1次; two cells of a table), but no number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

INSIDE = frozenset(";、|")
CUT = re.compile(r"(?<=[\d.\-a-z])(?=\d)|(?<=[a-z0-9])(?=[a-z%]|[.\-]\d)")  # what begins or ends here cuts a word
DENYING = re.compile(r"[不无非未没勿莫否除]")
LAYOUT = frozenset(";,、。:\n|.-–—…·•/! ")


class Lexicon:
    """A set of words as a tree of characters; a word stands under "" where it ends."""

    def __init__(self, words: Iterable[str]) -> None:
        self._root: dict[str, Any] = {}
        for word in words:
            node = self._root
            for char in word:
                node = node.setdefault(char, {})
            if word:
                node[""] = word

    def read(self, text: str, also: Lexicon) -> tuple[list[tuple[int, str]], list[tuple[int, int]]]:
        """(end, word) of each word found; (start, end) of what is no word, no layout and no part of `also`."""
        known = bytearray(char in LAYOUT for char in text)
        words: list[tuple[int, str]] = []
        for at in range(len(text)):
            end, word = self._longest(text, at) if not words or at >= words[-1][0] else (at, "")
            if word:
                words.append((end, word))
            end = max(end, also._longest(text, at)[0])
            known[at:end] = b"\1" * (end - at)
        return words, [match.span() for match in re.finditer(rb"\0+", known)]

    def core(self, text: str, also: Lexicon) -> str:
        """The text without the words at its ends."""
        _, left = self.read(text, also)
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
            if "" in node and not (CUT.match(text, start) or CUT.match(text, i)):
                best = (i, node[""])
        return best


def pairs_of(*texts: str) -> Counter[str]:
    """Their neighbouring characters, two by two; a single character stands for itself."""
    return Counter(text[i : i + 2] for text in texts for i in range(max(1, len(text) - 1)) if text)


def stands_in(text: str, part: str) -> bool:
    """True when the text has the part, and no number or Latin word is cut by it."""
    return re.search(f"(?!{CUT.pattern}){re.escape(part)}(?!{CUT.pattern})", text) is not None


def longest_run(text: str, start: int, question: str) -> int:
    """How many characters of `text` from `start` on stand in the question, beside one another."""
    ends = range(start + 1, len(text) + 1)
    return next((end - 1 - start for end in ends if text[start:end] not in question), len(text) - start)
