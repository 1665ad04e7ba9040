"""One form for all ways to write a number or a date, so that equal values are equal tokens.

Guarantees: pure functions, linear in the text's length. 1,200 and "one thousand two hundred" are 1200, 33.50 is 33.5,
3.5万 is 35000, dates are 1994-05-03, hours and minutes are minutes, a unit stands apart from its number. Not covered:
one amount in two other units; rounding; a day and a month that could be exchanged (05/03/1994), which stay as they are.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from decimal import Decimal

from sql_agent.offline_judge.normal import normalise, unfolded

ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
SMALL = {word: n for n, word in enumerate(f"{ONES} eighteen nineteen".split())}
SMALL |= {word: 10 * n for n, word in enumerate(TENS.split(), 2)}
SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "万": 10**4, "亿": 10**8}
NAMED = "|".join(SMALL)
NUMERAL = re.compile(
    rf"\b(?:{NAMED}|an? (?=hundred|thousand|million))"
    rf"(?:[ -]?(?:and )?(?:{NAMED}|hundred|thousand|million|billion))*\b(?: point((?: (?:{NAMED}))+)\b)?"
)
SCALED = re.compile(r"(?<!\d)(\d+(?:\.\d+)?) ?(thousand\b|million\b|billion\b|[万亿])")
DECIMAL = re.compile(r"(?<!\d)(?<!\d\.)(\d+)\.(\d+)(?!\.?\d)")
BELOW_ZERO = re.compile(r"(?:\bminus |\bnegative |负)(\d[\d.]*)|(?<!\d)(?<!\d\.)(\d+(?:\.\d+)*(?: degrees)?) below 0\b")
NO_NUMERAL = re.compile(r"[两二](?=者)|(?<![期周拜])一(?=[共起样定般些下直列栏])|(?<=[同唯统])一")
THOUSAND = re.compile(r"(?<![\w.-])(\d+(?:\.\d+)?)[kK]\b(?![-/])")  # 5k
OCLOCK = re.compile(r"点(?=[一二三四五]?十[一二三四五六七八九]?分|零[一二三四五六七八九]分)")  # no decimal one
QUARTER = re.compile(r"[点时]([一三13])刻")
SUPERLATIVE = re.compile(r"\b(most [a-z]+|[a-z]{2,20}est) one\b", re.I)  # a thing, and no number
COINS = re.compile(r"(?<![\d.])(\d{1,12}) (euros?|dollars?|pounds?) (?:and )?(\d\d?) (?:cents?|pence)\b")
HALVES = (  # two and a half hours, half an acre; no half of a year, as in 上半年
    re.compile(r"(?<!\d)(\d+)(?:个半|([^\W\d]{1,2})半(?![\u4e00-\u9fff]))"),
    re.compile(r"(?<![\d上下前后大多过一])(半)(?=[个小天年月日亩斤里米吨升])"),
    re.compile(r"(?<![.\d])(\d+) and (?:a|1) half\b"),
)
QUARTERS = re.compile(r"(?<![.\d])(\d+) and (?:(a|1)|3) quarters?\b")
LASTS = re.compile(r"(?<![\d.])(\d+) ?(?:hours?|hrs?|h)[, ]{0,2}(?:and )?(\d+) ?(?:minutes?\b|mins?\b|分钟?)")
YUAN = re.compile(r"(?<!\d)(\d+)[元块](\d)角?(?:(\d)分)?(?!\d)")
PERCENT = re.compile(r"百分之(-?\d[\d.]*)|(?<!\d)(?<!\d\.)(-?\d+(?:\.\d+)*) ?(?:%|per ?cent\b)")
MONTHS = re.findall(r"\w+", "january february march april may june july august september october november december")
MONTH = "|".join(f"{month[:3]}(?:{month[3:]})?\\.?" for month in MONTHS) + "|sept\\.?"
WEEKDAY = r"(?:\b(?:mon|tues|wednes|thurs|fri|satur|sun)day[,;]? ?)?"
DATES = (
    re.compile(
        r"(?<!\d)(?P<y>\d{4}) ?(?:[-/.]|年的?) ?(?P<m>\d{1,2}) ?[-/.月] ?(?P<d>\d{1,2})"
        r"(?: ?[日号]|(?![\d个只件位名条台次家本份]))(?:[t ]00:00(?::00)?(?!\d))?"
        r"(?:[、 ]?(?:星期|周|礼拜)[1-6日天]、?)?"
    ),
    re.compile(rf"{WEEKDAY}\b(?P<d>\d{{1,2}})(?:st|nd|rd|th)?[ -](?:of )?(?P<m>{MONTH})[,; -]{{1,2}}(?P<y>\d{{4}})\b"),
    re.compile(r"(?<!\d)(?P<d>1[3-9]|2\d|3[01])[-/](?P<m>0?[1-9]|1[0-2])[-/](?P<y>\d{4})(?!\d)"),
    re.compile(r"(?<!\d)(?P<d>0?[1-9]|[12]\d|3[01])\.(?P<m>0?[1-9]|1[0-2])\.(?P<y>\d{4})(?!\.?\d)"),
    re.compile(rf"{WEEKDAY}\b(?P<m>{MONTH}) ?(?:the )?(?P<d>\d{{1,2}})(?:st|nd|rd|th)?[,; ]{{1,2}}(?P<y>\d{{4}})\b"),
)  # fmt: skip
DAY, HOUR = r"\d{4}-\d\d-\d\d", r"(?<![\d.])(?<!\d:)(?P<h>[01]?\d|2[0-3])"
HALF = "[上下中]午|[晚早]上|凌晨|[清早]晨|傍晚"
TIME = r"\d\dh\d\d(?:m\d\d)?"
DATE = re.compile(rf"{DAY}(?: {TIME})?")
AM = r" ?(?P<half>[ap]\.?m\b\.?)"
CLOCKS = (
    re.compile(rf"(?P<zh>{HALF})?{HOUR}:(?P<m>[0-5]\d)(?::(?P<s>[0-5]\d)(?:\.\d+)?)?(?![:\d])(?:{AM})?"),
    re.compile(rf"{HOUR}(?:\.(?P<m>[0-5]\d))?{AM}"),
    re.compile(rf"(?P<half>{HALF})?{HOUR}[点时](?:(?P<m>[0-5]?\d)分(?:(?P<s>[0-5]?\d)秒)?|[半整]|(?(half)|(?!)))"),
)
MOMENT = re.compile(
    rf"({DAY})(?:[,;、 ]|\ba?t\b|的|\n\W*(?:time|[\u4e00-\u9fff]{{0,4}}时间)\W*:)*({TIME})"
    rf"|({TIME})(?:[,; ]|\bon\b)*({DAY})"
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
BLANK_THOUSANDS = re.compile(r"(?<![\d.,:/-])[1-9]\d{0,2}(?: \d{3})+(?=\.\d\d?(?!\d)|(?![\d.,:/-]*\d))")
NUMBERED = re.compile(r"(?<=\d)(?<![^\W\d]\d)-(?=[a-z]{3})", re.I)  # a 45-minute crossing
AREA = re.compile(r"(?<=\d)( ?[cdkm]?m)[23]\b")  # after NFKC, also m²
PER = re.compile(r"((?<![^\W\d])\d ?(?:[a-z]{0,9}|[\u4e00-\u9fff]{1,3}))/([a-z\u4e00-\u9fff])")  # 24/day, 24元/天
SIGN = re.compile(r"(?<!\w)[-−](?=\d)")
DASH = re.compile(r"(?<=[^\W\d]|[*`]) +[-–—]+ +(?=\w)")  # between blanks: a stop, and no sign of a number
COLON = re.compile(r"(?<=\d)\**:\** +(?=\**\d)")  # with a blank: of no time, but what a number has
MONEY = re.compile(r"([^\S\n]?)(?:US|HK)?[$€£¥]\s?(?=-?\d)|(?<=\d) ?[$€£¥](?! ?\d)")
CENTS = re.compile(r"(€ ?)?(?<![\d.,])(\d+(?:\.\d{3})*),(\d\d)(?!\d)((?(1)| ?(?:€|eur(?:os?)?\b)))", re.I)  # 1.234,50 €
STROKES = str.maketrans({"Ł": "L", "ł": "l", "Ø": "O", "ø": "o", "Đ": "D", "đ": "d", "ß": "ss", "Æ": "Ae", "æ": "ae"})
NUMERO = re.compile(r"(?<=[\w(（] )no\.:? ?(?=[`*\d])|(?<=[(（])no\. ?(?=\d)", re.I)  # no. 7, and no denial
ABBREVIATED = re.compile(r"\b(mr|mrs|ms|dr|prof|st)\. ?", re.I)


@functools.lru_cache(maxsize=4096)
def plain(text: str) -> str:
    """The judge's normal form with its values in one form."""
    text = NO_NUMERAL.sub("", unfolded(text.replace("，", ";")).replace("零下", "负"))
    text = re.sub(r"(?<=[a-z])n['’]t\b", " not", re.sub(r"(?<=\w)['’](?=(?:s|re|ve|ll|d|m)\b)", " ", text, flags=re.I))
    text = re.sub(r"(?<=\w)['’](?=\w)", "", text)  # O'Brien is one word
    text = NUMERO.sub("number ", text)
    text = SUPERLATIVE.sub(r"\1", QUARTER.sub(lambda m: f"时{45 if m[1] in '3三' else 15}分", OCLOCK.sub("时", text)))
    text = THOUSAND.sub(r"\1 thousand", text)
    text = CENTS.sub(lambda m: f"{m[1] or ''}{m[2].replace('.', '')}.{m[3]}{m[4]}", text)
    text = re.sub(r"(?<=\d[:,]\d\d)(?=[)）])", " ", text)  # no mark of an item
    text = NUMBERED.sub(" ", AREA.sub(r"\1", text)).replace("首次", "第1次")
    text = DASH.sub(": ", SIGN.sub("负", BLANK_THOUSANDS.sub(lambda m: "".join(m[0].split()), text)))
    text = COLON.sub(" = ", text)
    text = normalise(ABBREVIATED.sub(r"\1 ", MONEY.sub(r"\1", unaccented(text))))
    for pattern in DATES:
        text = pattern.sub(_iso, text)
    for pattern in CLOCKS:
        text = pattern.sub(_clock, text)
    text = YUAN.sub(lambda m: f"{m[1]}.{m[2]}{m[3] or ''}元", text)
    text = MOMENT.sub(lambda m: f" {m[1] or m[4]} {m[2] or m[3]} ", text)
    text = re.sub(r"(?<!\d)(\d+)万(\d{4})(?!\d)", r"\1\2", text)
    text = SCALED.sub(lambda m: f"{Decimal(m[1]) * SCALES[m[2]]:f} ", NUMERAL.sub(_in_digits, text))
    text = COINS.sub(lambda m: f"{m[1]}.{int(m[3]):02} {m[2]}", text)
    for pattern in HALVES:
        text = pattern.sub(lambda m: f"{0 if m[1] == '半' else m[1]}.5{(m.re.groups > 1 and m[2]) or ''}", text)
    text = QUARTERS.sub(lambda m: f"{m[1]}.{25 if m[2] else 75}", text)
    text = LASTS.sub(lambda m: f"{60 * int(m[1]) + int(m[2])} minutes ", text)
    text = DECIMAL.sub(lambda m: f"{m[1]}.{m[2]}".rstrip("0").rstrip("."), text)
    text = BELOW_ZERO.sub(lambda m: f" -{m[1] or m[2]}", text)
    text = PER.sub(lambda m: f"{m[1]}{' per ' if m[2].isascii() else '每'}{m[2]}", text)
    text = PERCENT.sub(lambda m: f"{m[1] or m[2]} percent ", text)
    text = re.sub(r"(?<=\d)(?<!h\d\d)(?=[a-z°])(?!(?:st|nd|rd|th|h\d\d(?:m\d\d)?)\b)", " ", text)
    return re.sub(" {2,}", " ", text).strip()


def unaccented(text: str) -> str:
    """Latin letters without their accents and strokes."""
    return re.sub(r"(?<=[a-zA-Z])[\u0300-\u036f]+", "", unicodedata.normalize("NFD", text.translate(STROKES)))


def _clock(match: re.Match[str]) -> str:
    half = match["half"] or match.groupdict().get("zh") or ""
    hour = int(match["h"]) % 12 + 12 * (half[0] in "p下晚中傍") if half else int(match["h"])
    seconds = match.groupdict().get("s")
    return f" {hour:02}h{int(match['m'] or 30 * match[0].endswith('半')):02}{f'm{seconds:>02}' if seconds else ''} "


def _iso(match: re.Match[str]) -> str:
    month = match["m"]
    n = int(month) if month.isdecimal() else next(i for i, name in enumerate(MONTHS, 1) if name[:3] == month[:3])
    return f"{match['y']}-{n:02}-{int(match['d']):02} "


def _in_digits(match: re.Match[str]) -> str:
    total, part = 0, 0
    whole, _, digits = match[0].partition(" point")
    for word in re.findall(r"[a-z]+", whole):
        if word in SMALL:
            part += SMALL[word]
        elif word in ("a", "an"):
            part = 1
        elif word == "hundred":
            part *= 100
        elif word in SCALES:
            total, part = total + part * SCALES[word], 0
    return f"{total + part}{'.' if digits else ''}{''.join(str(SMALL[word]) for word in digits.split())}"
