"""The other numbers of an answer that lead to a value: its terms, and what it is a part of.

Guarantees: pure functions, linear in the text; a sum is looked for among a few numbers only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from itertools import permutations

from sql_agent.offline_judge.units import NAMES, UNITS
from sql_agent.offline_judge.values import DATE, NUMBER, TIME

VALUE = re.compile(rf"{DATE.pattern}|{TIME}|{NUMBER.pattern}")
CALCULATES = re.compile(
    r"\d(?: [a-z]+)? ?[-+−*×/÷] ?\d|=|\b(?:sum\w*|total\w*|add\w*|together|altogether|minus|plus|times|divided)\b"
    r"|\b(?:leav\w+|remain\w*)\b|合计|[总一]?共|相?[加减乘除]|去掉|[剩其]余|相?差"
    r"|\d[^\d]+\d[^\d]+\d[^\d]+\d"
)
WHOLE = re.compile(
    r"\bof (?:the |its |their |all |a total of |[\w ]{1,20} s )?(\d[\d.]{0,15})"
    r"|(?<![\d.])(\d[\d.]{0,15})[^\W\d]{1,6}[里中]"
)
CHAIN = re.compile(r"(?<![\d.])\d[\d.]{0,15}(?: ?\+ ?\d[\d.]{0,15})+")
RESULT = re.compile(r"\d ?= ?(\d{1,15}(?:\.\d{1,15})?)(?![\d.]| ?[-+−*×/÷] ?\d)")  # of a calculation
AGAIN = re.compile(  # an amount, perhaps a rough one
    r"(?P<about>(?:\b(?:or|about|around|approximately|roughly|nearly|almost|(?:just |a little )?(?:over|under)) "
    r"|(?:[约近合]|大概) ?)*)(?:[a-z]{3} (?=\d)|[$€£¥])?(?P<number>(?<![\d.:-])\d+(?:\.\d+)?)(?![\d:-]|\.\d|[a-z]\d)"
    rf"(?: ?(?P<unit>{NAMES})(?![a-z]))?"
)
SAME, SAME_IN_UNIT = 1e-5, 0.03  # shares of a number
CLOSE = 0.005  # a share of what is calculated
MAX_TERMS, MAX_FACTORS, FEW = 12, 3, 20  # what is few may be a sum by chance


def explained(said: str, value: float, own: Set[str]) -> frozenset[str]:
    """The numbers that lead to a value; those of the question's `own` only as terms."""
    results = [float(result) for result in RESULT.findall(said)]
    if results and all(abs(result - abs(value)) > CLOSE * abs(value) for result in [*results, sum(results)]):
        return frozenset()  # 50 - 38 = 12 is no way to 38
    numbers = [number.lstrip("-") for number in VALUE.findall(said) if NUMBER.fullmatch(number)]
    new = [number for number in numbers if number not in own]
    if len(new) > 1 and value > FEW and any(is_same(sum(terms), value) for terms in (map(float, new), results)):
        return frozenset(new)
    for terms in (new, numbers, *map(NUMBER.findall, CHAIN.findall(said))):
        is_told, amounts = CALCULATES.search(said) is not None, [*map(float, terms)]
        is_plain = "#" in said and 1 < len(terms) <= MAX_FACTORS and max(amounts) > FEW
        is_tried = new and (is_plain or (is_told and len(terms) <= MAX_TERMS))
        if is_tried and _makes(amounts, abs(value), is_told=is_told):
            return frozenset(terms)
    for pair in permutations({*new}, 2) if len({*new}) <= MAX_FACTORS and "#" in said else ():
        share = float(pair[0]) / (float(pair[1]) or 1)
        if share < 1 and any(abs(one - value) <= CLOSE * value for one in (share, 100 * share)):
            return frozenset(pair)
    wholes = {whole for groups in WHOLE.findall(said) for whole in groups if whole and float(whole.rstrip(".")) > value}
    return frozenset(wholes & {*new})


def without_numbers(said: str, numbers: frozenset[str]) -> str:
    """A text with blanks for these numbers, but not in dates and times."""
    return VALUE.sub(lambda value: " " if value[0].lstrip("-") in numbers else value[0], said) if numbers else said


def without_again(said: str, numbers: Sequence[float], unit: str) -> str:
    """A text without what tells one of these numbers, of a unit, once more, rounded or in another unit: 7420 g (about
    7.4 kg)."""
    own_kind, own_size = UNITS.get(unit, ("", 1.0))

    def is_again(amount: re.Match[str], number: float) -> bool:
        again, (kind, size) = float(amount["number"]), UNITS.get(amount["unit"] or unit, ("", 1.0))
        is_rough = amount["about"].strip() not in ("", "or")  # "46 or 50" tells two
        if is_same(again, number) or kind != own_kind or not (is_rough or size != own_size):
            return False
        wanted, digits = abs(number) * own_size / size, len(re.sub(r"\D", "", amount["number"]).strip("0"))
        is_near = size != own_size and abs(again - wanted) <= SAME_IN_UNIT * wanted
        return is_near or float(f"{wanted:.{digits or 1}g}") == again

    return AGAIN.sub(lambda one: " " if any(is_again(one, number) for number in numbers) else one[0], said)


def is_same(one: float, other: float) -> bool:
    return abs(abs(one) - abs(other)) <= SAME * abs(other)


def _makes(terms: Sequence[float], value: float, *, is_told: bool) -> bool:
    """Whether a value is the sum of terms, or the difference of two of them; where it `is_told` that it was calculated,
    also their mean, product, ratio or growth, and rounded."""
    different, whole = {*terms}, sum(terms)
    pairs = [*permutations(different, 2)] if len(different) <= MAX_FACTORS else []
    results = [*([whole] if len(different) > 1 else []), *(a - b for a, b in pairs)]
    if is_told:
        results += [sum(different), whole / len(terms)] if len(different) > 1 else []
        results += [(whole - terms[-1]) / terms[-1]] if len(different) > 2 and terms[-1] else []  # a mean of so many
        results += [of for a, b in pairs for of in (a * b, *((a / b, 100 * a / b, 100 * (a - b) / b) if b else ()))]
    return any(abs(result - value) <= (CLOSE if is_told else SAME) * abs(value) for result in results)
