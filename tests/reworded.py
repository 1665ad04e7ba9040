"""The same question again in ten ways, and other questions beside it: English and Chinese, drawn by a seed.

The fourth of four generators with nothing in common but the kinds; what docs/45-curate.md says of the other three, and
of the first look at this one, was written before anything was mended after it.
"""

from __future__ import annotations

import functools
import random
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass

import cn2an
import inflect

from tests.typos import FOLDER

Change = Callable[[str, random.Random], str]


@dataclass(frozen=True)
class Language:
    """Patterns of questions, what stands in them, and how each kind of noise changes them."""

    patterns: list[str]
    things: list[str]
    others: list[str]
    before: list[str]
    after: list[str]
    synonyms: dict[str, str]
    abbreviations: dict[str, str]
    switched: dict[str, str]
    contracted: dict[str, str]
    denied: dict[str, str]
    orders: list[tuple[str, str]]
    numbers: Callable[[int], str]


@functools.cache
def in_english(n: int) -> str:
    """45: forty-five."""
    return str(inflect.engine().number_to_words(str(n)))


def in_chinese(n: int) -> str:
    """45: 四十五."""
    return cn2an.an2cn(n)


def read(name: str) -> tuple[Language, Language]:
    """English and Chinese of a file of tests/near_duplicates/."""
    tree = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    return Language(**tree["english"], numbers=in_english), Language(**tree["chinese"], numbers=in_chinese)


KINDS = (
    *("case", "typo", "order", "politeness", "synonym"),
    *("number", "abbreviation", "punctuation", "switch", "contraction"),
)


def asked(language: Language, n: int, dice: random.Random) -> list[str]:
    """`n` different questions."""
    found: dict[str, None] = {}
    while len(found) < n:
        t, u = dice.sample(language.things, 2)
        numbers = {
            "n": dice.choice((3, 4, 6, 9, 11, 24, 50, 75, 120, 250)),
            "m": dice.choice((5, 7, 8, 12, 13, 36, 90)),
        }
        found[dice.choice(language.patterns).format(t=t, u=u, o=dice.choice(language.others), **numbers)] = None
    return list(found)


def _word(table: dict[str, str], text: str, dice: random.Random) -> str:
    """The text with one of the table's words exchanged, or as it is."""
    there = [key for key in table if re.search(rf"(?<![a-z]){re.escape(key)}(?![a-z])", text)]
    return text.replace(key := dice.choice(there), table[key], 1) if there else text


def _typo(text: str, dice: random.Random) -> str:
    chinese = any("\u4e00" <= char <= "\u9fff" for char in text)
    places = [m.start() + 1 for m in re.finditer(r"[\u4e00-\u9fff]{3}" if chinese else r"(?<=[a-z])[a-z]{4}", text)]
    at = dice.choice(places)
    swapped = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    wrong = text[:at] + dice.choice("伹亊冐叧夨" if chinese else "qxzjv") + text[at + 1 :]
    return dice.choice((text[:at] + text[at + 1 :], text[:at] + text[at] + text[at:], swapped, wrong))


def _marks(text: str, dice: random.Random) -> str:
    bare = text.rstrip("?？。.")
    return dice.choice((bare, f"{bare}?!", f"({text})", f"{bare} . . .", text.replace(" ", "   "), f"** {text} **"))


def changed(language: Language, kind: str, text: str, dice: random.Random) -> str:
    """The text with noise of one kind, or as it is where the kind finds nothing to change."""
    if kind == "case":
        return dice.choice((text.upper(), text.lower(), text.swapcase()))
    if kind == "order":
        return next((new for old, by in language.orders if (new := re.sub(old, by, text)) != text), text)
    if kind == "politeness":
        return dice.choice((f"{dice.choice(language.before)}{text}", f"{text}{dice.choice(language.after)}"))
    if kind == "number":
        return re.sub(r"(?<![A-Z])\d+", lambda m: language.numbers(int(m[0])), text)
    if kind in ("typo", "punctuation"):
        return (_typo if kind == "typo" else _marks)(text, dice)
    tables = {"synonym": language.synonyms, "abbreviation": language.abbreviations, "switch": language.switched}
    return _word({**tables, "contraction": language.contracted}[kind], text, dice)


def others(language: Language, text: str, dice: random.Random) -> list[str]:
    """Questions that differ in one number, in one name, or by a denial."""
    found = [_word(language.denied, text, dice)]
    if numbers := list(re.finditer(r"(?<![A-Z])\d+", text)):
        at = dice.choice(numbers)
        found.append(f"{text[: at.start()]}{int(at[0]) + dice.choice((1, 2, 10))}{text[at.end() :]}")
    for names in (language.things, language.others):
        there = [name for name in names if name in text]
        if there:
            found.append(text.replace(there[0], dice.choice([name for name in names if name not in text]), 1))
    return [one for one in found if one != text]


def planted(language: Language, *, n: int, each: int, seed: int) -> tuple[list[str], list[tuple[str, int, str]]]:
    """`n` questions; and new ones with the place of the question that each repeats, -1 for none, and its kind."""
    dice = random.Random(seed)
    old, new = asked(language, n, dice), []
    known = {"".join(sorted(text)) for text in old}
    for kind in KINDS:
        found = [(changed(language, kind, old[at], dice), at, kind) for at in dice.sample(range(n), n)]
        new += [one for one in found if one[0] not in old][:each]
    for text in dice.sample(old, n):
        # Two names may stand the other way round in a question that is there.
        if free := [one for one in others(language, text, dice) if "".join(sorted(one)) not in known]:
            new.append((dice.choice(free), -1, "other"))
    return old, new
