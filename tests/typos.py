"""Four hands that mistype, each in English and in Chinese: what tests/noise.py plants as `typo`.

`daily` takes any letter, and characters of the same sound; `travel`, `town` and `roads` have tables of what is taken
for what, beside their questions in tests/near_duplicates/. All are functions of a text and of dice.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from pypinyin import lazy_pinyin

Typo = Callable[[str, random.Random], str]
FOLDER = Path(__file__).parent / "near_duplicates"
COMMON = [bytes([high, low]).decode("gb2312") for high in range(0xB0, 0xD7) for low in range(0xA1, 0xFF)]
SOUNDS: dict[str, list[str]] = {}
for char in COMMON:
    SOUNDS.setdefault(lazy_pinyin(char)[0], []).append(char)
KEYBOARD = "qwertyuiop asdfghjkl zxcvbnm"


def _table(file: str, name: str) -> dict[str, str]:
    """A character -> those that are taken for it."""
    words = tomllib.loads((FOLDER / f"{file}.toml").read_text(encoding="utf-8"))[name].split()
    return {word[0]: word[1:] for word in words}


NEAR, TRAVEL, TOWN, ROADS = (
    _table(*place) for place in (("travel", "near"), ("travel", "alike"), ("town", "alike"), ("roads", "alike"))
)


def _swapped(text: str, at: int) -> str:
    return text[:at] + text[at + 1] + text[at] + text[at + 2 :]


def _times(text: str, at: int, n: int) -> str:
    return text[:at] + text[at] * n + text[at + 1 :]


def _word(text: str, dice: random.Random, *, least: int) -> re.Match[str]:
    """A word of so many letters or more."""
    return dice.choice(list(re.finditer(rf"[A-Za-z]{{{least},}}", text)))


def _inside(text: str, dice: random.Random) -> int:
    """The place of a Chinese character between two others."""
    places = re.finditer(r"(?<=[\u4e00-\u9fff])[\u4e00-\u9fff](?=[\u4e00-\u9fff])", text)
    return dice.choice([match.start() for match in places])


def _mistaken(
    text: str, table: dict[str, str], dice: random.Random, *, share: float, pick: Callable[[str], str] = min
) -> str:
    """One of the table's characters taken for another, in this share of texts; else ""."""
    places = [at for at, char in enumerate(text) if char in table]
    if not places or dice.random() >= share:
        return ""
    at = dice.choice(places)
    return text[:at] + pick(table[text[at]]) + text[at + 1 :]


def daily_en(text: str, dice: random.Random) -> str:
    """Any letter more, less, other or exchanged with the next, in a word of four or more."""
    word = _word(text, dice, least=4)
    at = dice.randrange(word.start() + (len(word[0]) > 4), word.end() - 1)
    letter = dice.choice("abcdefghijklmnopqrstuvwxyz")
    more, other = text[:at] + letter + text[at:], text[:at] + letter + text[at + 1 :]
    return dice.choice((_swapped(text, at), _times(text, at, 0), more, other))


def daily_zh(text: str, dice: random.Random) -> str:
    """A character of the same sound, one less, one twice, or two that change places."""
    at = _inside(text, dice)
    same = [char for char in SOUNDS.get(lazy_pinyin(text[at])[0], ()) if char != text[at]]
    if same and dice.random() < 0.6:
        return text[:at] + dice.choice(same) + text[at + 1 :]
    return dice.choice([_swapped(text, at), _times(text, at, 0), _times(text, at, 2)])


def travel_en(text: str, dice: random.Random) -> str:
    """A neighbour on the keyboard, a letter twice, left out, or behind the next one, in a word of five or more."""
    word = _word(text, dice, least=5)
    at = dice.randrange(word.start() + 1, word.end() - 1)
    kind = dice.choice(("swap", "drop", "double", "key"))
    if kind == "swap" and text[at] != text[at + 1]:
        return _swapped(text, at)
    if kind == "key" and text[at].lower() in NEAR:
        return text[:at] + dice.choice(NEAR[text[at].lower()]) + text[at + 1 :]
    return _times(text, at, 0 if kind == "drop" else 2)


def travel_zh(text: str, dice: random.Random) -> str:
    """A character that sounds or looks the same, a character twice, or two that change places."""
    if mistaken := _mistaken(text, TRAVEL, dice, share=0.7, pick=dice.choice):
        return mistaken
    at = _inside(text, dice)
    return _times(text, at, 2) if dice.random() < 0.5 else _swapped(text, at)


def by_table(table: dict[str, str], *, share: float, times: Sequence[int]) -> Typo:
    """Characters that sound or look the same in this share of texts; else one that many times (1: behind the next)."""

    def typo(text: str, dice: random.Random) -> str:
        if mistaken := _mistaken(text, table, dice, share=share):
            return mistaken
        at = _inside(text, dice)
        n = dice.choice(times)
        return _swapped(text, at) if n == 1 else _times(text, at, n)

    return typo


town_zh, roads_zh = by_table(TOWN, share=0.75, times=(0, 2)), by_table(ROADS, share=0.7, times=(1, 0, 2))


def roads_en(text: str, dice: random.Random) -> str:
    """A letter for its neighbour on the keyboard, left out, twice, or behind the next one, in a word of four or
    more."""
    word = _word(text, dice, least=4)
    at = dice.randrange(word.start() + 1, word.end() - 1)
    place = KEYBOARD.index(text[at].lower()) if text[at].lower() in KEYBOARD else 1
    near = KEYBOARD[place + 1 : place + 2].strip() or KEYBOARD[place - 1]
    other = text[:at] + near + text[at + 1 :]
    return dice.choice((_swapped(text, at), other, _times(text, at, 0), _times(text, at, 2)))


# By name: in English, and in Chinese.
TYPOS: dict[str, tuple[Typo, Typo]] = {
    "daily": (daily_en, daily_zh),
    "travel": (travel_en, travel_zh),
    "town": (travel_en, town_zh),
    "roads": (roads_en, roads_zh),
}
