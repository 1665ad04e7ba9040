"""A period that a question names, told by its first and its last day: "from 1 April to 30 June 2024" of the second
quarter of 2024. Guarantees: pure functions on text in the normal form, linear in it. Not covered: weeks, school years.
"""

from __future__ import annotations

import re
from calendar import monthrange

from sql_agent.offline_judge.values import MONTHS

NAMED = "|".join(f"{name[:3]}(?:{name[3:]})?" for name in MONTHS)
ORDINALS = ("first", "second", "third", "fourth")
MONTH = re.compile(rf"\b({NAMED})\b(?! \d\d?\b)|(?<!\d)(1[0-2]|[1-9])月(?!\d)")
QUARTER = re.compile(r"\b(first|second|third|fourth) quarter\b|\bq([1-4])\b|第([1-4])季度")
HALF = re.compile(r"\b(first|second) half\b|([上下])半年")
YEAR = re.compile(r"(?<![\d.])((?:19|20)\d\d)(?![\d.])")
BETWEEN = r"(?:、| )*(?:to|and|through|until|till|-|–|—|~|[至到和])(?: the)? *"


def without_period(said: str, asked: str) -> str:
    """The text without the first and the last day of the period that the question names."""
    if not (months := _months(asked)):
        return said
    year = YEAR.search(asked)
    first, last = (_days(month, end, year[1] if year else r"\d{4}") for month, end in zip(months, (0, 1), strict=True))
    only_day = rf"|{monthrange(int(year[1]) if year else 2023, months[1])[1]}[日号]?" if months[0] == months[1] else ""
    return re.sub(rf"(?<![a-z\d.-])(?:{first}){BETWEEN}(?:{last}{only_day})(?![a-z\d.-])", " ", said)


def _months(asked: str) -> tuple[int, int] | None:
    """The first and the last month of the period; None where a question names none."""
    if month := MONTH.search(asked):
        n = int(month[2]) if month[2] else [name[:3] for name in MONTHS].index(month[1][:3]) + 1
        return n, n
    if quarter := QUARTER.search(asked):
        n = ORDINALS.index(quarter[1]) if quarter[1] else int(quarter[2] or quarter[3]) - 1
        return 3 * n + 1, 3 * n + 3
    if half := HALF.search(asked):
        return (1, 6) if half[1] == "first" or half[2] == "上" else (7, 12)
    return (1, 12) if YEAR.search(asked) else None


def _days(month: int, end: int, year: str) -> str:
    """How the first (0) or the last (1) day of a month may be written."""
    day = monthrange(int(year) if year.isdecimal() else 2023, month)[1] if end else 1
    name = f"{MONTHS[month - 1][:3]}(?:{MONTHS[month - 1][3:]})?"
    nth = f"{day}(?:st|nd|rd|th)?"
    return rf"{year}-{month:02}-{day:02}|{name} {nth}|{nth} {name}|0?{month}月0?{day}[日号]"
