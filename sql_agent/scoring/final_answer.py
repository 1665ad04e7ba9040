"""What a text gives as its final answer, and the number that this is: for answers in free words.

The answer is what follows the last ####, else what is in the box, else what follows "final answer", "answer" or
"result" (答案, 结果), else the last formula, else the last sentence with a number.
Guarantees: pure functions; a number is read with its sign, thousands, currency, unit, percent, 万 and 亿, as a fraction
and in English and Chinese words; one amount in several units (18元5角, 1 h 30 min) is one number; where a text offers
several (3 or 4), doubts (maybe 3), denies or takes back, it has none, and "about 3" is 3 only for a truth that is no
whole number. Not covered: what a denial denies ("18 (not 17)" gives nothing), and the truth's amount in another unit.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import pairwise

import cn2an
from text_to_num import alpha2digit

from foundation.files import writable
from sql_agent.scoring.answer_text import last_boxed, strip_thinking
from sql_agent.scoring.math_check import FORMULA, MARK, UNITS

MAX_CHARS = 20_000  # the end of a text; its final answer stands there
MAX_STATEMENTS = 8
IS = (
    r"(?:\s*(?:\b(?:is|was|equals?|(?:should|would|will|must) be|comes? (?:out )?to)\b"
    r"|应该是|应是|应为|就是|等于|是|为|:|=|→|->))+"
)
LEADS = [
    re.compile(rf"(?:{words}){IS}\s*", re.I)
    for words in (r"\bfinal\s+answer|(?:最终|最后)的?答案", r"\banswer|答案|\bans\b|答(?=\s*:)", r"\bresult|结果")
]
FLAT_BOX = re.compile(r"\\f?box(?:ed)?\s*\{([^{}]*)\}")
SENTENCE = re.compile(r"[^。！!？?\n;；]*?(?:(?<!i\.e)(?<!e\.g)\.(?=\s|$)|[。！!？?\n;；]|$)")
REASON = re.compile(r"\b(?:because|since)\b|因为|由于", re.I)
ASIDE = re.compile(
    rf"\([^()]*\)|(?:{REASON.pattern}|\b(?:as|which|where|when|for|if|in|per|each|every|after)\b).*", re.S | re.I
)
ALTERNATIVES = r"\b(?:if not|or|else|otherwise|either|one of|between|versus|vs)\b|或|还是|要么|之间|否则|不然"
HEDGES = (
    r"\b(?:maybe|perhaps|possibl[ey]|probabl[ey]|might|(?-i:may)|could|guess\w*|seems?)\b"
    r"|可能|也许|大概|恐怕|猜|[十百千万][多余来几]|几"
)
UNKNOWING = r"\b(?:not (?:quite )?sure|unsure|uncertain|do(?:n't| not) know|no idea)\b|不确定|不知道|无法确定"
UNSURE = rf"{UNKNOWING}|\b(?:unclear|guess\w*|wrong|incorrect|mistaken?)\b|不对|错了|有误|猜"
DENIALS = r"\b(?:not|never|neither|nor|wrong|incorrect)\b|n't\b|不是|并非|不对|错误"
TAKES_BACK = r"\b(?:wait|actually|correction|sorry|instead|rather|i mean)\b|更正|其实|应该|等等|不,"
ABOUT = re.compile(r"\b(?:about|approximately|approx|around|roughly|nearly|almost)\b|[≈~]|约|左右|将近|接近", re.I)
BOUND = re.compile(
    r"(?:\b(?:(?:more|less|fewer|greater) than|over|at (?:least|most)|up to)\b|至少|至多|最[多少]|超过|大于|小于"
    r"|不少于|不超过|[<>≥≤])\s*-?\d|\d\s*\+\s*$",
    re.I,
)
DOUBT_OF_ONE = re.compile(rf"{HEDGES}|{UNSURE}|[?？]|吗", re.I)
DOUBT = re.compile(rf"{ALTERNATIVES}|{DOUBT_OF_ONE.pattern}", re.I)
LATER_DOUBT = re.compile(rf"{DOUBT.pattern}|{DENIALS}|{TAKES_BACK}", re.I)

PARTS = re.compile(r"[,、;；\n]|\b(?:and|or|to)\b|或者?|和|与|至|到|[~–—]", re.I)
EQUALS = re.compile(r"=|≈|等于|是|为|\b(?:is|are|was|equals?|makes?|gives?|gets?|leaves?)\b", re.I)
SCALE = {"十": 10, "百": 10**2, "千": 10**3, "万": 10**4, "亿": 10**8}
SCALE |= {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
NUMBER = re.compile(
    r"(?<![A-Za-z0-9.^_/])(?<![A-Za-z]-)((?:(?<![\w)\]])[-+])?\d{1,300}(?:\.\d{1,300})?)(?:/(0*[1-9]\d{0,99}))?"
    r"(?![\d^]|\.\d|st\b|nd\b|rd\b|th\b)"
    r"\s?((?:[十百万亿]|千(?![克米瓦卡焦帕赫])|thousand|million|billion|trillion){0,9})\s?(%?)[ \t]?([^\W\d_]*)",
    re.I,
)
# A number and its unit.
BARE = re.compile(rf"(?:\W*[a-z]\s*[:.)])?\W*{NUMBER.pattern}(?<![\u4e00-\u9fff]{{5}})(?:\s+[a-z]+){{0,3}}\W*", re.I)
TELLS = re.compile(r"[^\W\d_]{2}\W+-?\d|[\u4e00-\u9fff]{2}\s*-?\d|\d[^=\d]*=")  # words, or a calculation
# Bounded: the time that cn2an takes grows with the square of the length.
NUMERAL = re.compile(r"[第负]?[零〇一二两三四五六七八九十百千万亿]{1,20}(?:点[零〇一二三四五六七八九]{1,9})?")
NO_NUMERAL = re.compile(r"一[共样起定些般直下致半]|[统唯万同每另]一|(?<!分)之一|十分|千万不?|万分")
NO_ONE = re.compile(r"\b(?:no|any|every|each|some|which|this|that|the(?: \w+)?) one\b|\bone (?:of|another)\b", re.I)
MINUS = re.compile(r"\b(?:minus|negative) (?=[a-z])", re.I)
LAYOUT = re.compile(  # of Markdown and LaTeX, and GSM8K's <<48/2=24>>
    r"<<[^<>\n]*>>|\*\*|__|`+|^[ \t]*(?:#{1,3}|\d{1,2}[.)、]|[-*•])\s|\bstep\s*\d+|\\(?:text|mathrm|textbf|[,;! $])",
    re.I | re.M,
)
# What is no number with words around it, but mathematics.
EXPRESSION = re.compile(
    r"\\|\^|[√π∞!]|[\d)]\s*(?:[*×·÷]|[+/]\s*[\d(])|[\d)]\s*-\s*[\d(]|\b[a-z]\s*[<>]|\d(?![dghklmsv])[a-z](?![a-z])",
    re.I,
)
SQUARED = re.compile(r"(?<=[\d\s])([ckdm]?m|ft|in|[^\W\d_]{0,2}米)\s?(?:\^\{?[23]\}?|[²³])")
SCIENTIFIC = re.compile(r"(?<![\w.])\d{1,15}(?:\.\d{1,15})?e[-+]?\d{1,2}(?![\w^]|\.\d)", re.I)  # 1.8e1
MIXED = re.compile(r"(?<![\d.])(\d{1,9}) (\d{1,9})/([1-9]\d{0,8})(?!\d)")
THOUSANDS = re.compile(r"(?<=\d)[,\u00a0\u202f\u2009](?=\d{3}(?!\d))")
SEVERAL_SCALES = re.compile(  # 1亿2千万
    r"(?<![\d.])\d{1,4}[百千万亿]{1,2}(?:\d{1,4}(?:[十百千万亿]{1,2}(?![克米瓦卡焦帕赫])|(?![\d.十百千万亿])))+"
)
# The units of one amount, each with its size.
LADDERS = [
    {word: size for words, size in ladder.items() for word in words.split()}
    for ladder in (
        {"元 块 块钱": 100, "角 毛": 10, "分": 1},
        {"美元 dollar dollars": 100, "美分 cent cents": 1},
        {"天 day days d": 86400, "小时 hour hours h": 3600, "分 分钟 minute minutes min": 60, "秒 second seconds s": 1},
        {"公里 千米 km": 10**6, "米 m": 1000, "分米 dm": 100, "厘米 cm": 10, "毫米 mm": 1},
        {"吨 t": 10**9, "公斤 千克 kg": 10**6, "克 gram grams g": 1000, "毫克 mg": 1},
        {"升 l": 1000, "毫升 ml": 1},
    )
]
STEPS = [
    rf"(\d{{1,9}}(?:\.\d{{1,9}})?)\s?({'|'.join(sorted(ladder, key=len, reverse=True))})(?![a-z之])"
    for ladder in LADDERS
]
AMOUNTS = [
    (re.compile(rf"(?<![A-Za-z\d.]){step}(?:\s?(?:and\s|又|零)?{step}){{1,5}}", re.I), re.compile(step, re.I), ladder)
    for step, ladder in zip(STEPS, LADDERS, strict=True)
]
CURRENCY = re.compile(r"(-?)(?:US|HK|R)?\\?[$€£¥](?=\s?-?\d)")


@dataclass(frozen=True)
class Number:
    """A number as it was given; `unit` is "" where none is known by math_check.UNITS."""

    value: Fraction
    percent: bool = False
    unit: str = ""
    about: bool = False


@dataclass(frozen=True)
class Answer:
    """A final answer: its text, and its number. `unclear`: it offers several, or doubts, denies or takes back."""

    text: str
    number: Number | None = None
    unclear: bool = False


def read_answer(text: str) -> Answer:
    """The final answer of a text."""
    text = _plain(strip_thinking(text)[-MAX_CHARS:])
    statements, behind, is_marked = _stated(text)
    answers = [_number_of(statement, is_marked=is_marked) for statement in statements]
    last = answers[-1]
    all_agree = len({answer.number.value if answer.number else answer.text for answer in answers}) == 1
    is_unknown = not is_marked and re.search(UNKNOWING, text, re.I)
    if not all_agree or is_unknown or (last.number and _takes_back(_unwrapped(behind), last.number)):
        return Answer(last.text, unclear=True)
    return last


def read_truth(text: str) -> Answer:
    """The same of a truth: without a mark it is a number only where it says little else."""
    plain = _plain(text)
    is_number = _stated(plain)[2] or BARE.fullmatch(_in_digits(_unwrapped(plain)))
    return read_answer(text) if is_number else Answer(plain)


def shown(answer: Answer) -> str:
    """An answer for people and programs; "" where it is unclear."""
    if answer.unclear:
        return ""
    if not answer.number:
        return answer.text
    value = answer.number.value
    decimal = f"{value:.15g}"
    text = decimal if value.denominator > 1 and Fraction(decimal) == value else str(value)
    return f"{text}%" if answer.number.percent else text


def same_number(truth: Number, answer: Number) -> bool:
    """Whether both are one amount: 50% is 50 as well as 0.5 where one side alone says percent."""
    if (truth.unit and answer.unit and truth.unit != answer.unit) or (answer.about and truth.value.denominator == 1):
        return False
    share = Fraction(1, 100) if truth.percent != answer.percent else 1
    percent, plain = (truth, answer) if truth.percent else (answer, truth)
    return truth.value == answer.value or percent.value * share == plain.value


def _plain(text: str) -> str:
    """One form for all ways to write a text; formulas keep their marks."""
    text = SQUARED.sub(r"\1", writable(text))
    text = text.translate({ord("²"): "^2", ord("³"): "^3", ord("，"): ", ", ord("−"): "-"})
    text = LAYOUT.sub(" ", unicodedata.normalize("NFKC", text).replace("⁄", "/").replace("...", ", "))
    text = re.sub(r"零下(?=[\d零一二三四五六七八九十])", "-", text)
    return re.sub(r"(?<![\w*)])\*([^\s*][^*\n]*)\*(?![\w*(])", r"\1", text).strip()


def _unwrapped(text: str) -> str:
    """The same without the marks of formulas, money and thousands."""
    text = FORMULA.sub(lambda match: f" {_inside(match.groups())} ", text)
    text = SCIENTIFIC.sub(lambda match: f"{Decimal(match[0]):f}", text)
    text = SEVERAL_SCALES.sub(lambda match: _digits(match[0]), THOUSANDS.sub("", CURRENCY.sub(r" \1", text)).strip())
    return MIXED.sub(lambda match: f"{int(match[1]) * int(match[3]) + int(match[2])}/{match[3]}", text)


def _inside(groups: Sequence[str | None]) -> str:
    return next(filter(None, groups), "").strip()


def _stated(text: str) -> tuple[list[str], str, bool]:
    """The statements of the final answer by its strongest mark, the text behind, and whether there is a mark."""
    marks = list(MARK.finditer(text))
    if marks and not _stated(text[marks[-1].end() :])[2]:
        statements = [_unwrapped(mark[1]) for mark in marks[-MAX_STATEMENTS:]]
        return [*filter(BARE.fullmatch, statements[:-1]), statements[-1]], text[marks[-1].end() :], True
    if box := last_boxed(text):
        statements = [_unwrapped(content) for content in [*FLAT_BOX.findall(text)[-MAX_STATEMENTS:], box]]
        return statements, text[text.rindex(box) + len(box) + 1 :], True
    formulas = [_inside(groups) for groups in FORMULA.findall(text)]
    text = _unwrapped(text)
    for lead in LEADS:
        leads = list(lead.finditer(text))[-MAX_STATEMENTS:]
        if ends := [end for opening in leads if (end := SENTENCE.match(text, opening.end()))]:
            return [end[0].strip() for end in ends], text[ends[-1].end() :], True
    numbered = [sentence for sentence in SENTENCE.finditer(text) if NUMBER.search(_in_digits(sentence[0]))]
    statements = [sentence[0].strip() for sentence in numbered[-2:]]
    behind = text[numbered[-1].end() :] if numbered else ""
    if formulas and not (statements and DOUBT.search(statements[-1])):
        return formulas[-1:], behind, True
    if not statements:
        return [text], "", False
    return statements if all(map(BARE.fullmatch, statements)) else statements[-1:], behind, False


def _number_of(statement: str, *, is_marked: bool) -> Answer:
    """What one statement says. Unmarked it is a sentence, whose last part counts where it tells of its number."""
    ends = "。.；; !！" if re.search(r"[^\W\d]", statement) else "。.；; "  # a bare 5! is a factorial
    statement = statement.rstrip(ends)
    text = ASIDE.sub(" ", statement) if is_marked else statement
    text = _in_digits(text if NUMBER.search(_in_digits(text)) else statement)
    parts = [part for part in PARTS.split(text) if NUMBER.search(part)]
    if not parts:
        return Answer(statement)
    if re.search(r"[(\[{][^()\[{]*\d,(?:(?!\d,)[^()\]}])*[)\]}]", statement):  # a pair, a set
        return Answer(statement)
    sides = [_last_side(part) for part in parts]
    values = [_numbers(side) for side in sides]
    every = [number for numbers in values for number in numbers]
    amounts, units = {(number.value, number.percent) for number in every}, {number.unit for number in every} - {""}
    is_same = len(amounts) == 1 < len(parts) == len(PARTS.split(text)) and len(units) < 2
    doubt = DOUBT_OF_ONE if is_same else DOUBT  # 18 or 18
    if doubt.search(REASON.split(statement)[0]) or re.search(DENIALS, statement if is_marked else parts[-1], re.I):
        return Answer(statement, unclear=True)
    if any(EXPRESSION.search(re.sub(r"\d+/0*[1-9]\d*", "1", side)) for side in sides):
        return Answer(statement)
    last = values[-1]
    is_told = not is_marked and len(last) == 1 and TELLS.search(parts[-1])
    if len({number.value for number in every}) > 1 and not is_told:
        return Answer(statement, unclear=True)
    return Answer(statement, replace(last[-1], about=bool(ABOUT.search(statement) or BOUND.search(sides[-1]))))


def _last_side(part: str) -> str:
    """What stands behind the last "=" that has a number behind it."""
    sides = [side for side in EQUALS.split(part) if NUMBER.search(side)]
    return sides[-1] if sides else part


def _numbers(text: str) -> list[Number]:
    numbers = []
    for digits, below, scale, percent, word in NUMBER.findall(text):
        value = Fraction(digits) / int(below or 1)
        for name in re.findall("|".join(SCALE), scale.lower()):
            value *= SCALE[name]
        numbers.append(Number(value, bool(percent), _unit(word.lower())))
    return numbers


def _unit(word: str) -> str:
    """The known unit of a word; of Chinese, in which words are not parted, of its beginning."""
    beginnings = [word] if word.isascii() else [word[:n] for n in range(len(word), 0, -1)]
    return next((UNITS[beginning] for beginning in beginnings if beginning in UNITS), "")


def _in_digits(text: str) -> str:
    """Words for numbers as digits, where there are no digits yet; one amount in several units as one number."""
    if re.search(r"\d", text):
        return _in_one_unit(text)
    text = alpha2digit(MINUS.sub("-", NO_ONE.sub(" ", text)), "en", 0)
    text = re.sub(rf"百分之({NUMERAL.pattern})", r"\1%", NO_NUMERAL.sub(" ", text))
    text = re.sub(rf"({NUMERAL.pattern})分之({NUMERAL.pattern})", r"\2/\1", text)
    return _in_one_unit(NUMERAL.sub(lambda match: _digits(match[0]), text))


def _in_one_unit(text: str) -> str:
    """18元5角 as 37/2元: what stands in units of one kind, each amount less than one of the unit before."""
    for amounts, step, sizes in AMOUNTS:
        text = amounts.sub(partial(_joined, step=step, sizes=sizes), text)
    return text


def _joined(match: re.Match[str], step: re.Pattern[str], sizes: dict[str, int]) -> str:
    steps = [(Fraction(digits) * sizes[unit.lower()], sizes[unit.lower()]) for digits, unit in step.findall(match[0])]
    if any(amount >= size for (_, size), (amount, _) in pairwise(steps)):
        return match[0]
    return f"{sum(amount for amount, _ in steps) / steps[0][1]}{match[2]}"


def _digits(numeral: str) -> str:
    try:
        return str(cn2an.cn2an(numeral.replace("两", "二").replace("〇", "零"), "smart"))
    except (ValueError, KeyError):  # 第三, or characters in an order that makes no numeral
        return numeral


def _takes_back(behind: str, number: Number) -> bool:
    """Whether what follows an answer is unsure of it, or offers another number."""
    if re.search(UNSURE, behind, re.I):
        return True
    return bool(LATER_DOUBT.search(behind)) and any(
        other.value != number.value for other in _numbers(_in_digits(behind))
    )
