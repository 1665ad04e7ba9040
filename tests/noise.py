"""Questions under one or two of ten kinds of noise, and others that differ from them in one thing that counts.

A `Noise` holds questions with slots, and what each kind of noise may change in them. Thirteen pairs of them, of as
many domains, are the files of tests/near_duplicates/; docs/45-curate.md says what was chosen on which.
"""

from __future__ import annotations

import functools
import random
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass

import cn2an
import inflect

from tests.typos import FOLDER, TYPOS, Typo

KINDS = (
    *("case", "typo", "order", "politeness", "synonym"),
    *("number", "abbreviation", "punctuation", "switch", "contraction"),
)
NUMBER = re.compile(r"(?<![A-Za-z\d])\d+(?![A-Za-z\d])")


@dataclass(frozen=True)
class Noise:
    """Questions, of two parts that may change places where a bar stands; {a} and {a2} are two of a pool, {n} and {m}
    numbers. What each kind of noise or difference exchanges stands in `words`."""

    asked: list[str]
    pools: dict[str, list[str]]
    numbers: list[int]
    words: dict[str, dict[str, str]]
    before: list[str]
    after: list[str]
    typo: Typo
    chinese: bool
    symmetric: Sequence[str] = ()

    def plain(self, line: str) -> str:
        """The question without its bar."""
        return "".join(line.split("|")) if self.chinese else " ".join(part.strip() for part in line.split("|"))


def read(name: str) -> tuple[Noise, Noise]:
    """The English and the Chinese set of a file of tests/near_duplicates/."""
    tree = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    english, chinese = (
        Noise(**tree[language] | {"typo": TYPOS[tree[language]["typo"]][place], "chinese": place == 1})
        for place, language in enumerate(("english", "chinese"))
    )
    return english, chinese


@functools.cache
def in_english(n: int) -> str:
    """45: forty-five."""
    return str(inflect.engine().number_to_words(str(n)))


def say_en(n: int) -> str:
    """45: forty-five, 1998: nineteen ninety-eight."""
    if n < 1000:
        return in_english(n)
    if 2000 < n < 2010:
        return f"two thousand {in_english(n % 100)}"
    return f"{in_english(n // 100)} {'oh ' * (0 < n % 100 < 10)}{in_english(n % 100) if n % 100 else 'hundred'}"


def say_zh(n: int) -> str:
    """45: 四十五, 1998: 一九九八."""
    return "".join(map(cn2an.an2cn, map(int, str(n)))) if n >= 1000 else cn2an.an2cn(n).replace("二百", "两百")


def filled(noise: Noise, template: str, dice: random.Random) -> str:
    """The template with its slots filled."""
    drawn = {name: dice.sample(values, 2) for name, values in noise.pools.items()}
    n, m = dice.sample(noise.numbers, 2)
    slots = {name: pair[0] for name, pair in drawn.items()} | {f"{name}2": pair[1] for name, pair in drawn.items()}
    return template.format(n=n, m=m, **slots)


def exchanged(table: dict[str, str], text: str, dice: random.Random) -> str:
    """The text with one of the table's words exchanged, or as it is."""
    pattern = r"(?<![A-Za-z]){}(?![A-Za-z])"
    there = [key for key in table if re.search(pattern.format(re.escape(key)), text)]
    if not there:
        return text
    key = dice.choice(there)
    if key == "百分之":
        return re.sub(r"百分之(\d+)", r"\1%", text)
    return re.sub(pattern.format(re.escape(key)), lambda _: table[key], text, count=1)


def _reordered(noise: Noise, line: str) -> str:
    first, second = (part.strip(" ?？，。,.") for part in line.split("|"))
    if noise.chinese:
        return f"{second}，{first}？"
    if line.partition("|")[0].strip().endswith("."):
        return f"{second}? {first}."
    first = first if first.startswith("I ") else first[0].lower() + first[1:]
    return f"{second[0].upper()}{second[1:]}, {first}?"


def _marked(noise: Noise, text: str, dice: random.Random) -> str:
    bare = text.rstrip("?？.。")
    both = [bare, f"{bare}???"]
    if noise.chinese:
        return dice.choice([*both, f"{bare}……", text.replace("，", " "), f"{bare}?", f"“{text}”", f"{bare}！？"])
    more = [f"{bare}...", re.sub(r"[,.?]", "", text), f'"{text}"', text.replace(" ", "  "), f"{bare} ?", f"- {text}"]
    return dice.choice([*both, *more])


def noised(noise: Noise, kind: str, line: str, dice: random.Random) -> str:
    """The question of the line, with noise of the kind, or as it is where that finds nothing."""
    text = noise.plain(line)
    if kind == "order":
        return _reordered(noise, line) if "|" in line else text
    if kind == "case":
        return dice.choice([str.upper, str.lower, str.title])(text)
    if kind == "politeness":
        return dice.choice([dice.choice(noise.before) + text, text + dice.choice(noise.after)])
    if kind == "number":
        return NUMBER.sub(lambda match: (say_zh if noise.chinese else say_en)(int(match[0])), text)
    if kind in ("typo", "punctuation"):
        return noise.typo(text, dice) if kind == "typo" else _marked(noise, text, dice)
    return exchanged(noise.words[kind], text, dice)


def different(noise: Noise, template: str, line: str, dice: random.Random) -> list[tuple[str, str]]:
    """Other questions, each by what it differs in."""
    text = noise.plain(line)
    found = [(kind, exchanged(noise.words[kind], text, dice)) for kind in ("attribute", "unit", "negation")]
    if numbers := list(NUMBER.finditer(text)):
        at = dice.choice(numbers)
        found.append(("number", f"{text[: at.start()]}{int(at[0]) + dice.choice((1, 2, 10, 100))}{text[at.end() :]}"))
    for name in dict.fromkeys(re.findall(r"\{([a-z]{2,})\}", template)):
        there = [value for value in noise.pools[name] if value in text]
        new = dice.choice([value for value in noise.pools[name] if value not in text])
        found.append(("entity", text.replace(dice.choice(there), new, 1)))
    for name in dict.fromkeys(re.findall(r"\{([a-z]{2,})2\}", template)):
        if name not in noise.symmetric:
            one, other = (value for value in noise.pools[name] if value in text)
            found.append(("roles", text.replace(one, "\0").replace(other, one).replace("\0", other)))
    return [(kind, new) for kind, new in found if new != text]


def planted(noise: Noise, *, seed: int, copies: int = 5) -> tuple[list[str], list[tuple[str, int, str]]]:
    """Questions; and new ones, each with the place of the one that it repeats (-1 for none) and what was done to it."""
    dice = random.Random(seed)
    lines: dict[str, tuple[str, str]] = {}
    for template in noise.asked:
        for _ in range(copies):
            line = filled(noise, template, dice)
            lines.setdefault(noise.plain(line), (template, line))
    known = {"".join(sorted(text)) for text in lines}
    new: list[tuple[str, int, str]] = []
    for place, (text, (template, line)) in enumerate(lines.items()):
        found = [(noised(noise, kind, line, dice), place, kind) for kind in dice.sample(KINDS, 4)]
        found.append(_twice(noise, line, place, dice))
        new += [one for one in found if one[0] not in lines]
        others = different(noise, template, line, dice)
        for kind, one in dice.sample(others, min(3, len(others))):
            # Two names may stand the other way round in a question that is there.
            if one != text and "".join(sorted(one)) not in known or kind == "roles" and one not in lines:
                new.append((one, -1, kind))
    return list(lines), new


def _twice(noise: Noise, line: str, place: int, dice: random.Random) -> tuple[str, int, str]:
    """The question under noise of two kinds; an order is changed first, while its bar is there."""
    kinds: Sequence[str] = sorted(dice.sample(KINDS, 2), key=lambda kind: kind != "order")
    text = line
    for kind in kinds:
        text = noised(noise, kind, text, dice)
    return text, place, "+".join(kinds)
