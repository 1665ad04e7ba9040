"""The one normal form in which the offline judge reads questions, references, evidence and answers.

Guarantees: a pure function, linear in the text's length. What a reader does not see is gone; traditional characters
are simplified (OpenCC), Chinese numerals are digits (cn2an), Chinese units are symbols (CLDR, through Babel); brackets,
quotation marks and the marks of Markdown are blanks. Not covered: synonyms, and one amount in two units (0.5g, 500mg).
"""

from __future__ import annotations

import functools
import re
import unicodedata

import cn2an
import opencc
from babel.units import format_unit

UNITS = [
    *("mass-kilogram", "mass-gram", "mass-milligram", "mass-microgram", "volume-liter", "volume-milliliter"),
    *("length-centimeter", "length-millimeter", "temperature-celsius", "pressure-millimeter-ofhg", "duration-hour"),
]
# The mark of an item is layout: ①, (1) and 1. before something that is no digit; at a line's start before anything.
ITEM_MARK = re.compile(
    r"[\u2460-\u2473]|(?:^|(?<=[;；。:：,，\s]))(?:[(（]\d{1,2}[)）]|\d{1,2}[.．)）、])[ \t]*(?=[^\s\d])"
    r"|^[ \t]*(?:\d{1,2}[.．)）、]|[-+•·])[ \t]+(?=\S)",
    re.MULTILINE,
)
ROW_NUMBER = re.compile(r"(?<=^\|)[ \t]*\d{1,2}[ \t]*(?=\|[ \t]*[^\s|])", re.MULTILINE)
# Bounded: the time that cn2an takes grows with the square of the length.
NUMERAL = re.compile(r"[零〇一二两三四五六七八九十百千万]{1,12}(?:点[零一二三四五六七八九]{1,9})?")
PARENTHESES = str.maketrans("()", "、、")  # what stands in them is an item of its own
MARKS = re.compile(r"[*#`\[\]{}《》「」『』【】〔〕\"'“”‘’]+|<br ?/?>")
RANGE = re.compile(r"(?<=\d)[ \t]*[~–—至到-][ \t]*(?=\d)")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# Blanks stay where they part Latin words or numbers, and where a line ends.
BLANK = re.compile(r"\s*\n\s*|(?<=[a-z0-9])[ \t]+(?=[a-z0-9])|[ \t]+")
_simplify = opencc.OpenCC("t2s")


@functools.lru_cache(maxsize=4096)
def normalise(text: str) -> str:
    """One form for all ways to write a text."""
    text = ROW_NUMBER.sub("", ITEM_MARK.sub("\n", text))
    text = unicodedata.normalize("NFKC", text.replace("，", ";"))
    text = "".join(char for char in text if unicodedata.category(char) != "Cf").lower()
    text = NUMERAL.sub(_in_digits, _simplify.convert(text))
    text = RANGE.sub("-", MARKS.sub(" ", THOUSANDS.sub("", text.translate(PARENTHESES))))
    text = _units()[0].sub(lambda match: _units()[1].get(match[1], match[1]), text)
    return BLANK.sub(_blank, text).strip()


def _in_digits(match: re.Match[str]) -> str:
    try:
        return f"{cn2an.cn2an(match[0].replace('两', '二').replace('〇', '零'), 'smart')}"
    except ValueError:  # characters of a numeral in an order that makes none
        return match[0]


def _blank(match: re.Match[str]) -> str:
    if "\n" in match[0]:
        return "\n"
    inside = match.start() > 0 and match.end() < len(match.string)
    sides = (match.string[match.start() - 1], match.string[match.end()]) if inside else ("", "")
    return " " if all(side.isascii() and side.isalnum() for side in sides) else ""


@functools.cache
def _units() -> tuple[re.Pattern[str], dict[str, str]]:
    """How amounts may end, and the symbol for each Chinese word."""
    words: dict[str, str] = {}
    for unit in UNITS:
        symbol = format_unit(1, unit, "narrow", locale="en")[1:].lower()
        for length in ("long", "short"):
            word = format_unit(1, unit, length, locale="zh").removeprefix("1").strip()
            words |= {word: symbol} if not word.isascii() else {symbol: symbol}
    ends = "|".join(re.escape(word) for word in sorted({*words, *words.values()}, key=len, reverse=True))
    return re.compile(rf"(?<=[\d/])[ \t]*({ends})(?![a-z])"), words
