"""Numbers as digits, however English or Chinese says them: "twenty-five", "2.5k", "twice", "百分之五", "四万五千".

Guarantees: pure functions, linear in the text's length. Not covered: Roman numerals, but behind type, stage, grade,
phase and class.
"""

from __future__ import annotations

import re

from text_to_num import alpha2digit

from sql_agent.offline_judge.normal import normalise

SCALE = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "k": 1000}
SCALE |= {"百": 100, "千": 1000, "万": 10**4, "亿": 10**8}
ROMAN = {"i": 1, "ii": 2, "iii": 3, "iv": 4}
ARTICLE = re.compile(r"\ban? (?=(?:hundred|thousand|million|billion)\b)")
# Years: nineteen ninety-eight, twenty ten, nineteen oh six.
SAID_YEAR = re.compile(r"\b(?:seventeen|eighteen|nineteen|twenty)[ -]+[a-z]+(?:[ -][a-z]+)?")


def _scaled(match: re.Match[str]) -> str:
    return number(str(float(match[1]) * SCALE[match[2]]))


DIGITS = (
    (re.compile(r"(?<=\d),(?=\d{3}(?!\d))"), ""),
    (re.compile(r"(?<=[\u4e00-\u9fff])(?=[a-z])|(?<=[a-z])(?=[\u4e00-\u9fff])"), " "),
    (re.compile(r"㎡"), "m²"),
    (re.compile(r"(?<![a-z])([a-z]{1,2})²"), r" square \1 "),
    (re.compile(r"\btwice\b|\bbid\b"), "2 times"),
    (re.compile(r"\bthrice\b|\btid\b"), "3 times"),
    (re.compile(r"\bqid\b"), "4 times"),
    (re.compile(r"\b(?:a |one )?half(?: an?)?\b"), "0.5 "),
    (re.compile(r"\b(?:a )?dozen\b"), "12"),
    (re.compile(r"(?<![a-z])([$€])\s?(\d+(?:\.\d+)?)"), r"\2 \1 "),
    (re.compile(r"\$"), " dollar "),
    (re.compile(r"(?<=\d)(?:st|nd|rd|th)\b"), ""),
    (re.compile(r"(?<!\d)(\d+(?:\.\d+)?)[ -]?(hundred|thousand|million|billion|k)\b"), _scaled),
    (re.compile(r"(?<=\d) ?d(?![a-z])"), " day "),
    (re.compile(r"(?<=\d) ?y(?![a-z])"), " year old "),
    (re.compile(r"\b(type|stage|grade|phase|class)[ -](iii|ii|iv|i)\b"), lambda match: f"{match[1]} {ROMAN[match[2]]}"),
)

SAID_LATER = (
    (re.compile(r"百分之(\d+(?:\.\d+)?)"), r"\1%"),
    (re.compile(r"(?<!\d)(\d+)分之(\d+)"), r"\2/\1"),
    (re.compile(r"半(?=片|个|小时|粒|斤|年|天|克|瓶|杯)"), "0.5"),
    (re.compile(r"(\d)个半"), r"\1.5个"),
    (re.compile(r"(?<!\d)(\d+(?:\.\d+)?) ?(百|千|万|亿)(?![克米卡瓦])"), _scaled),
)


def _year(match: re.Match[str]) -> str:
    digits = alpha2digit(re.sub(r"\boh?\b", "zero", match[0]), "en", 0)
    year = re.match(r"(\d\d) (\d\d)\b", digits)
    return f"{year[1]}{year[2]}{digits[year.end() :]}" if year else match[0]


def in_digits(text: str) -> str:
    """A text in lower case, with its numbers as digits, in the normal form of the judge."""
    for pattern, plain in DIGITS:
        text = pattern.sub(plain, text)
    text = normalise(alpha2digit(SAID_YEAR.sub(_year, ARTICLE.sub("", text)), "en", 0))
    for pattern, plain in SAID_LATER:
        text = pattern.sub(plain, text)
    return text


def number(token: str) -> str:
    """One form for 5, 5.0 and 05."""
    return f"{float(token):.12g}"
