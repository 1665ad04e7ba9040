"""Finding known words in a text, the longest at each place from the left, and what is left over.

A text is its tokens: one Chinese character, one Latin word, one number with its unit; layout is none. So layout never
counts, and no word can cut a number or a Latin word (3 in 13, 5 in 0.5, 3 in 3mg).
Guarantees: linear in the text's length for a given lexicon.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate, groupby
from typing import Any

DENYING = re.compile(r"[不无未没勿否除]|非(?![诺洛布奈甾]|那[西雄吡])|\b(?:not?|never|none|without|except)\b")
LAYOUT = frozenset(";,、。:\n|.-–—…·•/!_→ ")
# Of grammar: they carry no fact.
GRAMMAR = re.compile(
    r"(?<= )(?:本 品|该 药|患 者|病 人|主 要|出 现|[的了是为在则和与及并而将把也都者就所地会应要需须请可以时如等]"
    r"|an?|the|is|are|be|been|being|and|of|its?|this|these|that|should|must|shall|will|also|you|your|their)(?= )"
)
MAX_SHORT = 200  # characters of a text that is kept spelt: the same ones come again for each answer
LATIN = "a-z0-9\u00b5\u00df-\u03ff\u0400-\u04ff\u1e00-\u1eff"
TOKEN = re.compile(rf"(?:(?<![{LATIN}])[-.](?=\d))?[{LATIN}]+(?:(?:(?<=\d)\.(?=\d)|-)[{LATIN}]+)*(?:%|°[a-z]*)?|[^\s]")


def tokens(text: str) -> list[re.Match[str]]:
    """The tokens of a text in normal form."""
    return [match for match in TOKEN.finditer(text) if match[0] not in LAYOUT]


def spell(text: str) -> str:
    """The tokens alone, between blanks: `spell(a) in spell(b)` says that b has a."""
    return _short(text) if len(text) <= MAX_SHORT else _spelt(text)


def _spelt(text: str) -> str:
    return f" {' '.join(match[0] for match in tokens(text))} "


_short = lru_cache(maxsize=8192)(_spelt)


class Lexicon:
    """A set of words as a tree of tokens; a word's spelling stands under "" where it ends. With `skips` words of
    grammar may stand in a word, or be left out of it."""

    def __init__(self, words: Iterable[str], *, skips: bool = False) -> None:
        self._root: dict[str, Any] = {}
        self._bare: dict[str, Any] = {}  # without words of grammar
        for word in words:
            found = (spelling := spell(word)).split()
            _grow(self._root, found, spelling)
            bare = GRAMMAR.sub("", spelling).split() if skips else []
            if len(bare) > 1:
                _grow(self._bare, bare, spelling)

    def read(self, text: str, also: Lexicon | None = None) -> tuple[list[tuple[int, int, str]], list[tuple[int, int]]]:
        """(start, end, spelling) of each word; (start, end) of what is no word, no layout and no part of `also`."""
        found = tokens(text)
        spelt = [match[0] for match in found]
        light = _of_grammar(spelt) if self._bare else []
        known = bytearray(len(text))  # by the place where a token begins
        words: list[tuple[int, int, str]] = []
        after = 0
        for at in range(len(found)):
            end, word = self._longest(spelt, at, light) if at >= after else (at, "")
            if word:
                words.append((found[at].start(), found[end - 1].end(), word))
                after = end
            end = max(end, also._longest(spelt, at, light)[0]) if also else end
            for match in found[at:end]:
                known[match.start()] = 1
        strange = [list(run) for is_known, run in groupby(found, lambda m: known[m.start()]) if not is_known]
        return words, [(run[0].start(), run[-1].end()) for run in strange]

    def core(self, text: str, also: Lexicon) -> str:
        """The text without the words at its ends."""
        _, left = self.read(text, also)
        return text[left[0][0] : left[-1][1]] if left else ""

    def _longest(self, spelt: list[str], start: int, light: list[bool]) -> tuple[int, str]:
        node, best = self._root, (start, "")
        for i in range(start, len(spelt)):
            node = node.get(spelt[i])
            if node is None:
                break
            if "" in node:
                best = (i + 1, node[""])
        node = self._bare
        for i in range(start, len(spelt) if node else start):
            if light[i] and node is not self._bare:
                continue
            node = node.get(spelt[i])
            if node is None:
                break
            if "" in node and i + 1 > best[0]:
                best = (i + 1, node[""])
        end, word = best
        while end < len(light) and light[end] and word.endswith(f" {spelt[end]} "):  # the word's own last one
            end += 1
        return end, word


def _of_grammar(spelt: list[str]) -> list[bool]:
    """Which tokens are words of grammar."""
    text = f" {' '.join(spelt)} "
    places = {place for found in GRAMMAR.finditer(text) for place in range(*found.span())}
    starts = accumulate((len(token) + 1 for token in spelt[:-1]), initial=1)
    return [start in places for start in starts] if spelt else []


def _grow(root: dict[str, Any], found: Iterable[str], spelling: str) -> None:
    node = root
    for token in found:
        node = node.setdefault(token, {})
    if node is not root:
        node.setdefault("", spelling)


def pairs_of(*texts: str) -> Counter[str]:
    """Their neighbouring characters, two by two; a single character stands for itself."""
    return Counter(text[i : i + 2] for text in texts for i in range(max(1, len(text) - 1)) if text)
