"""The ways in which people write one value: numbers, days, names with titles, lists."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import cn2an

WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
)
ONES = f"{WORDS} eighteen nineteen".split()
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
MONTHS = [f"{date(2000, n, 1):%B}" for n in range(1, 13)]
DIGITS = "〇一二三四五六七八九"


def words(n: int) -> str:
    """A whole number below 10 million in English words."""
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10 - 2] + (f"-{ONES[n % 10]}" if n % 10 else "")
    for size, name, joint in ((10**6, "million", " "), (1000, "thousand", " "), (100, "hundred", " and ")):
        if n >= size:
            return f"{words(n // size)} {name}" + (f"{joint}{words(n % size)}" if n % size else "")
    raise ValueError(n)


def numbers(value: float, language: str, unit: str) -> list[str]:
    """With and without thousands, a trailing zero, words, 万; each with its unit."""
    whole = isinstance(value, int)
    written = [str(value), f"{value:,}", f"**{value:,}**"] + ([] if whole else [f"{value:,.2f}", f"{value:.3f}"])
    if language == "en":
        digits = "" if whole else " point " + " ".join(ONES[int(d)] for d in str(value).split(".")[1])
        written += [words(int(value)) + digits]
        if unit == "$":
            return [f"${one}" for one in written if one[0].isdigit()] + [f"{one} dollars" for one in written]
        return [f"{one} {unit}".strip() for one in written]
    written += [cn2an.an2cn(value)] if whole else []
    written += [f"{value / 10000:g}万"] if whole and value >= 10000 and not value % 10 and value < 10**6 else []
    return [f"{one}{unit}" for one in written]


def days(value: str, language: str) -> list[str]:
    """A date in many forms."""
    day = date.fromisoformat(value)
    y, m, d = day.year, day.month, day.day
    if language == "zh":
        year = "".join(DIGITS[int(c)] for c in str(y))
        spoken = f"{year}年{cn2an.an2cn(m)}月{cn2an.an2cn(d)}日"
        return [value, f"{y}年{m}月{d}日", f"{y}年{m:02}月{d:02}日", f"{y}/{m}/{d}", f"{y}.{m}.{d}", spoken,
                f"{y}年{m}月{d}号", f"{y} 年 {m} 月 {d} 日"]  # fmt: skip
    name, end = MONTHS[m - 1], {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd"}.get(d, "th")
    return [value, f"{d} {name} {y}", f"{name} {d}, {y}", f"{name} {d}{end}, {y}", f"the {d}{end} of {name} {y}",
            f"{d} {name[:3]} {y}", f"{name[:3]} {d}, {y}", f"{y}/{m:02}/{d:02}", f"{day:%A}, {d} {name} {y}",
            f"{name[:3]}. {d}, {y}", f"{d}-{name[:3]}-{y}", f"the {d}{end} of {name}, {y}"]  # fmt: skip


def titled(name: str, language: str) -> list[str]:
    """A name alone and with a title."""
    if language == "zh":
        return [name, name, f"{name}先生", f"{name}女士", f"{name}教授"]
    return [name, name, f"**{name}**", f"Ms. {name}", f"Mr {name}", f"Dr. {name}", f"Professor {name}"]


def lists(things: Sequence[str], language: str) -> list[str]:
    """Things one after the other, in a line and in lines."""
    numbered, dashed = (f"{n}. {t}" for n, t in enumerate(things, 1)), (f"- {t}" for t in things)
    lines = ["\n" + "\n".join(one) for one in (numbered, dashed)]
    if language == "zh":
        rest = [f"{'、'.join(things[:-1])}和{things[-1]}", f"{'、'.join(things[:-1])}以及{things[-1]}"]
        return ["、".join(things), "，".join(things), *rest, *lines]
    return [
        ", ".join(things),
        f"{', '.join(things[:-1])} and {things[-1]}",
        f"{', '.join(things[:-1])}, and {things[-1]}",
        *lines,
    ]
