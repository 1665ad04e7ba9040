"""Near-duplicates of questions, planted by a seed: what people change when they ask the same again; and what is found
of any that were planted."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import opencc

from sql_agent.curation.near import alike

Change = Callable[[str, random.Random], str]
BEFORE = ("请问", "您好，请问", "麻烦问一下，", "医生，", "我想知道", "请教一下：", "Hi, ", "请告诉我，")
AFTER = ("？谢谢！", "？？", "呢？", "？多谢。", "吗?", "…", " ?")
_traditional = opencc.OpenCC("s2t")


def _at(text: str, dice: random.Random) -> int:
    """A place inside a word, not at the question's end."""
    places = [n for n, char in enumerate(text[:-2]) if "\u4e00" <= char <= "\u9fff" and char not in "是什么有哪请"]
    return dice.choice(places)


def _marks(text: str, dice: random.Random) -> str:
    return dice.choice([text.rstrip("？。") + "?", f"  {text} ", text.replace("、", ","), f"“{text}”", text + "\n"])


def _blanks(text: str, dice: random.Random) -> str:
    at = dice.randrange(1, len(text))
    return f"{text[:at]} {text[at:]}"


def _lost(text: str, dice: random.Random) -> str:
    at = _at(text, dice)
    return text[:at] + text[at + 1 :]


def _doubled(text: str, dice: random.Random) -> str:
    at = _at(text, dice)
    return text[:at] + text[at] + text[at:]


def _wrong(text: str, dice: random.Random) -> str:
    at = _at(text, dice)
    return text[:at] + dice.choice("曰彐乂兀囗冂凵卩厶夂") + text[at + 1 :]


def _turned(text: str, dice: random.Random) -> str:
    at = min(_at(text, dice), len(text) - 4)
    return text[:at] + text[at + 1] + text[at] + text[at + 2 :]


def _reworded(text: str, dice: random.Random) -> str:
    for old, new in (
        ("是什么", "有哪些"),
        ("有哪些", "都有什么"),
        ("请列出", "查一下"),
        ("查询", "请问"),
        ("怎么", "如何"),
    ):
        if old in text:
            return text.replace(old, new)
    return f"{text.rstrip('？。')}是什么？"


CHANGES: list[Change] = [
    _marks,
    _blanks,
    _lost,
    _doubled,
    _wrong,
    _turned,
    _reworded,
    lambda text, dice: dice.choice(BEFORE) + text,
    lambda text, dice: text.rstrip("？。") + dice.choice(AFTER),
    lambda text, dice: _traditional.convert(text),
    lambda text, dice: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text) + "　",
]


def planted(texts: list[str], n: int, *, seed: int) -> list[tuple[int, str]]:
    """`n` near-duplicates: which text each repeats, and its new wording, by one change or two."""
    dice = random.Random(seed)
    found = []
    for index in dice.sample(range(len(texts)), n):
        text = texts[index]
        for change in dice.sample(CHANGES, dice.choice([1, 1, 2])):
            text = change(text, dice)
        found.append((index, text))
    return found


@dataclass(frozen=True)
class Looked:
    """How well new questions that repeat old ones were told from others: `missed` and `wrong` are (kind, text)."""

    missed: list[tuple[str, str]]
    wrong: list[tuple[str, str]]
    recall: float
    precision: float


def look_for(old: list[str], new: list[tuple[str, int, str]]) -> Looked:
    """Look for the new questions among the old ones; each has the place of the one that it repeats, or -1, and its
    kind."""
    found: dict[int, set[int]] = {place: set() for place in range(len(new))}
    for matches in alike([*old, *(text for text, *_ in new)], n_old=len(old)):
        for match in matches:
            found[match.index - len(old)] |= {match.other} if match.other < len(old) else set()
    missed = [(kind, text) for place, (text, at, kind) in enumerate(new) if at >= 0 and at not in found[place]]
    wrong = [(kind, text) for place, (text, at, kind) in enumerate(new) if at < 0 and found[place]]
    n_same = sum(at >= 0 for _, at, _ in new)
    right = n_same - len(missed)
    looked = Looked(missed, wrong, right / n_same, right / (right + len(wrong)))
    print(f"recall {looked.recall:.3f} of {n_same}, precision {looked.precision:.3f}, wrong {len(wrong)}")
    return looked
