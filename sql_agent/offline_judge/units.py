"""Amounts in other units: 6.8 cm where millimetres are asked for, and hours that are no days.

Guarantees: pure functions, linear in the text; exact, within ten digits. A month is a twelfth of a year of
365.25 days. Not covered: money, amounts of two units but hours and minutes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sql_agent.offline_judge.normal import normalise

# Of one kind a line: the units, each with how many of the first one it has.
KINDS = """
s/sec/second/seconds/秒/秒钟=1 min/mins/minute/minutes/分钟=60 h/hr/hrs/hour/hours/小时/钟头=3600 day/days/天=86400
week/weeks/周/星期=604800 month/months/个月=2629800
year/years/年=31557600 | mm/millimetre/millimetres/millimeter/millimeters/毫米=1
cm/centimetre/centimetres/centimeter/centimeters/厘米=10 m/metre/metres/meter/meters/米=1000
km/kilometre/kilometres/kilometer/kilometers/公里/千米=1000000
feet/foot/ft/英尺=304.8 mile/miles/英里=1609344 | mg/milligram/milligrams/毫克=1
g/gram/grams/克=1000 kg/kilo/kilos/kilogram/kilograms/公斤/千克=1000000 斤=500000 t/tonne/tonnes/吨=1000000000
| ml/millilitre/millilitres/milliliter/milliliters/毫升=1 l/litre/litres/liter/liters/升=1000
| kmh/km_per_h/kilometres_per_hour/kilometers_per_hour/公里每小时/千米每小时/公里每h=1
kn/knot/knots/节=1.852 m_per_s/metres_per_second/meters_per_second/米每秒=3.6
"""
UNITS = {
    word.replace("_", " "): (kind, float(size))
    for kind, units in enumerate(KINDS.split("|"))
    for words, _, size in (one.partition("=") for one in units.split())
    for word in words.split("/")
}
UNITS |= {normalise(word): size for word, size in [*UNITS.items()] if not word.isascii()}
NAMES = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
AMOUNT = re.compile(rf"(?<![a-z\d.,:-])(-?\d{{1,15}}(?:\.\d{{1,15}})?)( ?)({NAMES})(?![a-z]|每(?!次))")
ASKED = re.compile(rf"\b(?:how (?:many|much)|in|of)(?: whole| full)? ({NAMES})\b(?! \d)|[多几]少?个?({NAMES})")
MAX_YEARS = 3  # digits of a number of years; one of more is a year
WORD = re.compile(r"[a-z]+|[\u4e00-\u9fff]+")


def unit_of(asked: str, value: str, columns: Sequence[str]) -> str:
    """The unit that a value has, else that the question asks for, else that its column is named by; or none."""
    told = [match[3] for match in [AMOUNT.match(value)] if match]
    told += [one or other for one, other in ASKED.findall(asked)]
    told += [word for column in columns for word in WORD.findall(column) if word in UNITS]
    return told[0] if told else ""


def in_unit(said: str, unit: str, asked: str) -> str:
    """A text with all amounts of this kind in this unit, but those of the question."""
    if unit not in UNITS:
        return said
    kind, size = UNITS[unit]

    def changed(match: re.Match[str]) -> str:
        its_kind, its_size = UNITS[match[3]]
        is_year = match[3] == "年" and len(match[1]) > MAX_YEARS
        if is_year or its_kind != kind or its_size == size or match[0] in asked:
            return match[0]
        return f"{float(f'{float(match[1]) * its_size / size:.10g}'):.15g} {unit} "

    return AMOUNT.sub(changed, said)
