"""The ways to say a value: 0.125 is 12.5 percent too, "curie, marie" is "marie curie", "2024-03" is "march".

Guarantees: pure functions. Not covered: synonyms; other units, to which `wordings` brings the answer.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal

from sql_agent.offline_judge.slots import SAME
from sql_agent.offline_judge.values import DATE, MONTHS, NUMBER, SCALES
from sql_agent.records import AnswerType
from sql_agent.words.meanings import is_english

DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
SHORT_DAYS = {"mon", "tue", "tues", "wed", "thu", "thurs", "fri", "sat", "sun"}
WEEKDAY_ZH = re.compile(r"(?:周|星期|礼拜)([1-6日天])")
QUARTER = re.compile(r"q([1-4])")
ORDINALS = ("first", "second", "third", "fourth")
YEAR_MONTH = re.compile(r"(\d{4})(?:-|年)(0?[1-9]|1[0-2])月?")
SECONDS = re.compile(r"(\d\dh\d\d)m\d\d")  # which may be left out
ASKS_MONTH = re.compile(r"\bmonth\b|几月|哪[1个]*月|月份")
ASKS_DAY = re.compile(r"哪1?[天日](?!.*[点时])|\b(?:what|which) da(?:y|te)\b(?!.*\btime\b)")  # and no time of it
UNSCALED = re.compile(r"(?<!\d)(?<!\d )(thousand|million|billion|[万亿])")
IS_ROUNDED = re.compile(
    r"(?:\b(?:about|around|approximately|roughly)|约|大[概致])[是为有 =:]{0,2}\d|\d[^\d,;。]{0,6}左右"
)
MAX_DECIMALS, MAX_DECIMALS_ROUNDED = 3, 1  # more are rarely written in full; of a number that is told as a rough one
NAME, MOST_NAMES = re.compile(r"[a-z][a-z '.-]+"), 3  # words
LEGAL_FORM = re.compile(r"[b-df-hj-np-tv-xz]{2,4}|inc|ag|sa|se|co|corp|gmbh|llc|plc|oy|ab|as")
ASKS_PERSON = re.compile(r"\bwho(?:m|se)?\b")
MOST_DIGITS, SURE_DIGITS = 5, 3


def forms_of(value: str, kind: AnswerType, question: str, said: str) -> list[str]:
    """The ways to say a value where `said` answers: it may round, and leave out what the question has."""
    number = NUMBER.match(value)
    if kind == "number" and number:
        return _forms_of_number(value, number[0], question, said)
    in_full = _in_full(value, question) if number and number[0] == value else []
    named = [value, *_named_shorter(value, question), *_turned(value), *_weekdays(value), *_quarters(value)]
    named += [f"{name}{end}" for name in SAME.get(value, ()) for end in ("", "s")] if len(value) == 3 else []  # EUR
    return [*named, *_dates(value, question, said), *_months(value, question), *in_full]


def _forms_of_number(value: str, number: str, question: str, said: str) -> list[str]:
    """Without its unit, rounded, a share in percent, a month's name."""
    forms = [value, number, *_in_full(number, question)]
    is_rough = IS_ROUNDED.search(said) is not None
    decimals = len(number.partition(".")[2])
    if decimals > (MAX_DECIMALS_ROUNDED if is_rough else MAX_DECIMALS):
        least = 0 if is_rough else 1
        forms += [f"{round(float(number), digits):.10g}" for digits in range(least, min(decimals, MOST_DIGITS))]
    forms += _rounded(number)
    if len(number.partition(".")[0].lstrip("-")) > MOST_DIGITS:
        forms += [f"{float(f'{float(number):.{digits}g}'):.15g}" for digits in range(SURE_DIGITS, MOST_DIGITS)]
    if abs(float(number)) <= 1 and "." in number:
        percent = f"{float(number) * 100:.10g}"
        whole = [f"{float(percent):.0f}"] if is_rough and len(percent.partition(".")[0]) > 1 else []
        forms += [f"{share} percent" for share in (percent, *_rounded(percent, least=2), *whole)]
    if ASKS_MONTH.search(question) and value.isdecimal() and 1 <= int(value) <= len(MONTHS):
        forms += _names_of_month(int(value))
    return forms


def _rounded(number: str, least: int = SURE_DIGITS) -> list[str]:
    """A number with decimals to fewer of them, of so many significant digits or more."""
    decimals = min(len(number.partition(".")[2]), MOST_DIGITS)
    places = [f"{Decimal(number).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP):f}" for digits in range(decimals)]
    return [f"{Decimal(one).normalize():f}" for one in places if len(re.sub(r"[-.]", "", one).lstrip("0")) >= least]


def _in_full(number: str, question: str) -> list[str]:
    """3.5 as 3500000 where the question asks for millions."""
    return [f"{float(number) * SCALES[scale]:.15g}" for scale in {*UNSCALED.findall(question)}]


def _named_shorter(value: str, question: str) -> list[str]:
    """A name in the plural, without its article, its legal form or what it is of (TC, GmbH), with an initial, or a
    person by the surname; a word that the language has as well names nobody but where a person is asked for."""
    words = value.removeprefix("the ").split()
    if not NAME.fullmatch(" ".join(words)) or len(words) > MOST_NAMES:
        return []
    forms = [" ".join(words), f"{' '.join(words)}s"]
    if len(words) < 2:
        return forms
    forms.append(" ".join([words[0][0], *words[1:]]))
    core = " ".join(words[:-1])
    if LEGAL_FORM.fullmatch(words[-1]):
        return forms if core in question or is_english(core) else [*forms, core]
    surname = words[-1]
    asks_person = ASKS_PERSON.search(question) is not None
    is_surname = len(surname) > 3 and surname not in question and (asks_person or not is_english(surname))
    return [*forms, surname] if is_surname else forms


def _turned(value: str) -> list[str]:
    """The given name first: "marie curie" for "curie, marie"."""
    family, comma, given = value.partition(",")
    return [f"{given} {family}"] if comma and not re.search(r"[\d,]", family + given) else []


def _weekdays(value: str) -> list[str]:
    if value in DAYS:
        return [f"{value}s"]
    if day := WEEKDAY_ZH.fullmatch(value):
        return [f"{week}{day[1]}" for week in ("周", "星期", "礼拜")]
    return [day for day in DAYS if value in SHORT_DAYS and day.startswith(value)]


def _quarters(value: str) -> list[str]:
    if not (quarter := QUARTER.fullmatch(value)):
        return []
    return [f"{quarter[1]}季度", f"第{quarter[1]}季度", f"{ORDINALS[int(quarter[1]) - 1]} quarter"]


def _dates(value: str, question: str, said: str) -> list[str]:
    """A time without its seconds, or with none; a day without its time where the question asks for a day; where the
    answer has the day in full, also in the ways that could be another day: 05 03 1994."""
    forms = [SECONDS.sub(r"\1", value), re.sub(r"(\d\dh\d\d)(?!m)", r"\1m00", value)]
    if not DATE.fullmatch(value):
        return forms
    date = value[:10]
    year, month, day = date.split("-")
    forms += [date] if ASKS_DAY.search(question) else []
    return [*forms, f"{day} {month} {year}", f"{month} {day} {year}"] if date in said else forms


def _months(value: str, question: str) -> list[str]:
    """How to say a month of a year; without the year where the question has it."""
    if not (year_month := YEAR_MONTH.fullmatch(value)):
        return []
    year, n = year_month[1], int(year_month[2])
    name = MONTHS[n - 1]
    forms = [f"{year}-{n:02}", f"{year}-{n}", f"{n}-{year}"]
    forms += [f"{month} {of}{year}" for month in (name, name[:3], name[:4]) for of in ("", "of ")]
    forms += [f"{year}年{month}月{end}" for month in (n, f"{n:02}") for end in ("", "份")]
    return [*forms, *_names_of_month(n)] if re.search(rf"(?<!\d){year}(?!\d)", question) else forms


def _names_of_month(n: int) -> list[str]:
    return [MONTHS[n - 1], MONTHS[n - 1][:3], f"{n}月", f"{n}月份"]
