"""The other numbers of an answer that lead to a value: its terms, what it is a part of, and the value rounded.

Guarantees: pure functions, linear in the text; a sum is looked for among a few numbers only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from itertools import permutations

from sql_agent.offline_judge.values import DATE, NUMBER, TIME

VALUE = re.compile(rf"{DATE.pattern}|{TIME}|{NUMBER.pattern}")
CALCULATES = re.compile(
    r"\d ?[-+−*×/÷] ?\d|=|\b(?:sum\w*|total\w*|add\w*|together|altogether|minus|plus|times|divided|leav\w+|remain\w*)\b"
    r"|合计|[总一]?共|相?[加减乘除]|去掉|[剩其]余|\d[^\d]+\d[^\d]+\d[^\d]+\d"
)
WHOLE = re.compile(
    r"\bof (?:the |its |their |all |a total of |[\w ]{1,20} s )?(\d[\d.]{0,15})"
    r"|(?<![\d.])(\d[\d.]{0,15})[^\W\d]{1,6}[里中]"
)
ABOUT = re.compile(
    r"(?:\b(?:about|around|approximately|roughly|some|over|nearly|almost|just (?:over|under))|[约近]) ?(\d[\d.]{0,15})"
)
RESULT = re.compile(r"\d ?= ?(\d{1,15}(?:\.\d{1,15})?)(?![\d.]| ?[-+−*×/÷] ?\d)")  # of a calculation
CLOSE = 0.005  # a share of what is calculated
MAX_TERMS, MAX_FACTORS = 12, 3


def explained(said: str, value: float, own: Set[str]) -> frozenset[str]:
    """The numbers that lead to a value; those of the question's `own` only as terms."""
    results = [float(result) for result in RESULT.findall(said)]
    if results and all(abs(result - abs(value)) > CLOSE * abs(value) for result in results):
        return frozenset()  # 50 - 38 = 12 is no way to 38
    numbers = [number.lstrip("-") for number in VALUE.findall(said) if NUMBER.fullmatch(number)]
    new = [number for number in numbers if number not in own]
    for terms in (new, numbers):
        if new and CALCULATES.search(said) and len(terms) <= MAX_TERMS and _makes([*map(float, terms)], abs(value)):
            return frozenset(terms)
    wholes = {whole for groups in WHOLE.findall(said) for whole in groups if whole and float(whole.rstrip(".")) > value}
    rounded = {float(f"{value:.{digits}g}") for digits in (1, 2, 3)}
    rough = {number for number in ABOUT.findall(said) if number in new and float(number) in rounded}
    return frozenset(rough | wholes & {*new})


def without_numbers(said: str, numbers: frozenset[str]) -> str:
    """A text with blanks for these numbers, but not in dates and times."""
    return VALUE.sub(lambda value: " " if value[0].lstrip("-") in numbers else value[0], said) if numbers else said


def _makes(terms: Sequence[float], value: float) -> bool:
    """Whether a value is the sum of terms, or the difference, product, ratio or growth of two of them."""
    different = {*terms}
    results = [sum(terms), sum(different)] if len(different) > 1 else []
    for a, b in permutations(different, 2) if len(different) <= MAX_FACTORS else ():
        results += [a - b, a * b, *([a / b, 100 * a / b, 100 * (a - b) / b] if b else [])]
    return any(abs(result - value) <= CLOSE * abs(value) for result in results)
