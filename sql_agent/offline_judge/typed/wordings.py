"""An answer in the form that the question asks for: days with its year, amounts in its unit, "one in eight" as 12.5
percent, "none" as 0.

Guarantees: pure functions, linear in the answer. Only what means the value is changed; another value stays another.
"""

from __future__ import annotations

import re
from calendar import monthrange
from itertools import pairwise

from sql_agent.offline_judge.doubts import DENIALS, DOUBTS
from sql_agent.offline_judge.offers import cut_offers
from sql_agent.offline_judge.slots import stem
from sql_agent.offline_judge.typed.calculation import is_same, without_again
from sql_agent.offline_judge.typed.names import NO_NAMES, capitalised
from sql_agent.offline_judge.typed.sentences import CLAUSE_END, FRAME, VERB, content_of
from sql_agent.offline_judge.typed.sql_parts import without_sql
from sql_agent.offline_judge.typed.truths import Truth
from sql_agent.offline_judge.typed.yes_no import gives_verdict, verdict
from sql_agent.offline_judge.units import in_unit, unit_of
from sql_agent.offline_judge.values import DATE, MONTH, MONTHS, NUMBER, plain

SYMBOL = re.compile("[✅✔☑👉🎉📊📅🏆🔍💡📝📌😊🙂]\ufe0f? ?|</?answer>")  # says nothing
PARTICLE = re.compile(r"(?<=[\u4e00-\u9fff])(?:[哦喔呀啦]+(?=[^\w、]|$)|(?<=[好呢啦哦])[~～])")
ROUGHLY = re.compile(  # beside names and lists: (about 46 %)
    r"(?:[(（,，] ?)?(?:\b(?:about|around|approximately|roughly|some)|大?约) ?[£$€¥]?\d[\d.,]*"
    r"(?: ?%| percent\b)(?: of \w+)?[)）]?|[(（](?:about|around|approximately|roughly|some|大?约) ?[£$€¥]?\d[\d.,]*"
    r" ?(?:[kKmM]|bn|thousand|million|billion|[万亿千])?[^\W\d]{0,2}[)）]"
)
TABLE_LINE = re.compile(r"^[ \t]*\|[^\n]*(?:\n|$)", re.M)
HEADING = re.compile(r"^\s*(?:#+ [^\n]+|\*\*[^*\n]+\*\*)[ \t]*\n+(?=\s*\S)")
COMMA_ZH = re.compile(r"(?<=[\u4e00-\u9fff\d*`》」”）)]) ?, ?(?=[*`《「“]{0,3}[\u4e00-\u9fff])")
# Blanks between Chinese words: 蓝色 绿色
HEAPED = re.compile(r"(?<=[\u4e00-\u9fff])[\"”*+^]{0,3}[ \t]{1,4}[\"“*+^]{0,3}[ \t]{0,4}(?=[\u4e00-\u9fff])")
YEAR = re.compile(r"(?<![\d.,-])(?:19|20)\d\d(?![\d.]|,\d)")
YEAR_BEHIND = re.compile(r"(?<!\d)(\d{1,2}月\d{1,2}[日号])[（(]((?:19|20)\d\d)年?[)）]")  # 5月2日（2020年）
NTH = re.compile(r"\bthe (\d{1,2})(?:st|nd|rd|th)\b(?! (?:of|century|place|time)\b)(?! ?\d)")  # of a month
ASKED_MONTH = re.compile(rf"\b({MONTH}),? (?=(?:19|20)\d\d\b)")
FIRST_CELL = re.compile(r"^[ \t]*\|[ \t]*(\d[\d.,]*)[ \t]*(?=\|)", re.M)  # a value, and no number of the row
HEADER = re.compile(r"^[ \t]*\|([^\n]*)\|[ \t]*\n[ \t]*\|(?:[ \t]*:?-+:?[ \t]*\|)+[ \t]*$", re.M)  # of a table
DAY_EN = re.compile(  # without its year
    rf"\b(?:(?:{MONTH}) (?:the )?\d{{1,2}}(?:st|nd|rd|th)?|\d{{1,2}}(?:st|nd|rd|th)? (?:of )?(?:{MONTH}))\b(?!,? ?\d)",
    re.I,
)
DAY_ZH = re.compile(r"(?<![\d年])(?<![\d年] )(?<!年的)\d{1,2} ?月 ?\d{1,2} ?[日号]")
NUMBER_AT_END = re.compile(r"(?<=[^\s\d] )(\d[\d,.:/-]*)\.(?=\s+[^\W\d])")  # of a sentence
SINGLE = re.compile(r"\b(?:a|one|1) (?:single|sole)\b")
NONE = re.compile(  # is 0, of what the question counts: no "no idea"
    r"(?:\b(?:none|no|nobody|not (?:a single|any|one))\b"
    r"(?: of (?:the|its|them)\b| (?:that|which|who) (?:is|are|was|were|ha[sd]|have)\b)?"
    r"|1[^\d\s]?[也都]没有?|没有?(?:.{0,4}任何|1[^\d\s])) ?([a-z]+|[\u4e00-\u9fff]{0,2})"
)
EMPTY = re.compile(
    r"\b(?:no|0) (?:matching )?rows?\b|\bempty\b|没有?(?:返回|查询?到)(?:任何)?(?:记录|结果|数据)?|(?:结果|返回)为?空"
)
FEW = re.compile(r"\bnot (?:many|much|all|every|only|enough|quite)\b|不[多都全只]|没有?(?:多少|几)")
FALLS = r"(?:\b(?:lost|fell|fall|drop|decrease|decline|down|fewer|less|reduc)|[减少降跌])[^\d,.;。\n]{0,24}?"
SHARE = re.compile(
    r"(?<!\d)(?<!\d\.)(?P<part>\d{1,9}) (?:out of|in|of(?: the)?) (?:every )?(?P<whole>\d{1,9})(?!\.?\d)"
    r"|(?<!\d)(?P<whole_zh>\d{1,9})分之(?P<part_zh>\d{1,9})"
    r"|每(?P<of_each>\d{1,9})[^\d,;。]{1,8}[里中]有?(?P<some>\d{1,9})"
)
PERCENT = re.compile(r"percent|百分|\bpct\b")
FALSE_PERCENT = re.compile(r"(?<![\d.])0\.\d{1,15} percent")
SAME_SHARE = 1e-6
HOURS = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|one"
SPOKEN_TIME = re.compile(
    rf"\b(?:[Aa] )?([Hh]alf|[Qq]uarter) (past|to) ({HOURS}|\d\d?)\b(?: in the (morning|afternoon|evening))?"
)


def prepared(raw: str, truth: Truth, raw_question: str) -> str:
    """A raw answer without the question that it repeats, SQL, symbols and offers; its days with the question's year."""
    raw = COMMA_ZH.sub("，", raw)
    if truth.is_named and not PERCENT.search(plain(raw_question)):
        raw = ROUGHLY.sub(" ", raw)
    if truth.kind == "yes_no":
        raw = _without_layout(raw)
    answer = SYMBOL.sub("\n", PARTICLE.sub("，", without_sql(_without_question(raw, raw_question), truth)))
    answer = SPOKEN_TIME.sub(_clock, _without_offer(_with_year(answer, plain(raw_question)), raw_question))
    answer = HEADER.sub("\n", answer) if truth.n_values > 1 else answer
    answer = FIRST_CELL.sub(lambda cell: cell[1] if plain(cell[1]) in truth.values else cell[0], answer)
    return HEAPED.sub("、", answer) if truth.kind in ("name", "set") else answer


def _without_layout(raw: str) -> str:
    """A raw answer to a question of yes or no without its title, and without a table beside a verdict."""
    title = HEADING.match(raw)
    if title and not VERB.search(plain(title[0])) and not gives_verdict(plain(title[0])):
        raw = raw[title.end() :]
    rest = TABLE_LINE.sub("\n", raw)
    return rest if gives_verdict(plain(rest)) else raw


def _clock(spoken: re.Match[str]) -> str:
    """7:30 pm for half past seven in the evening."""
    part, hour = spoken[1].lower(), int(plain(spoken[3]).strip() or 0)
    minutes = 60 * hour + (30 if part == "half" else 15) * (1 if spoken[2] == "past" else -1)
    noon = "" if not spoken[4] else " am" if spoken[4] == "morning" else " pm"
    return f"{minutes // 60 or 12}:{minutes % 60:02}{noon}"


def _without_question(raw: str, raw_question: str) -> str:
    """A raw answer without the question that it repeats, with its mark."""
    words = r"[\s*_`\"'“”‘’«»]*".join(map(re.escape, raw_question.rstrip("?？ ").split()))
    return re.sub(
        rf"(?:^|(?<=[\n:：。.“\"]))[^\n.。:：]{{0,24}}[:：]?[\s*_\"“「『]{{0,16}}{words}\s*[?？][\s*_\"”」』]*[.。,，]?",
        "\n",
        raw,
    )


def in_asked_form(answer: str, truth: Truth, question: str) -> str:
    """A raw answer in the normal form, with the value as the question asks for it."""
    first, n = truth.values[0], truth.n_values
    said = plain(NUMBER_AT_END.sub(r"\1;", answer) if n == 1 else answer)
    if truth.values == ("0",):
        said = with_zeros(said, question)
    said = _told_once(_without_asked(said, first, question), truth, question)
    if truth.values == ("1",):
        said = SINGLE.sub(" 1 ", said)
    if truth.kind == "date":
        return _without_end_of_month(said, first)
    if truth.kind != "number":
        return said
    number = NUMBER.match(first)
    if n == 1 and number:
        said = _as_number(said, number[0], truth, question)
    return _without_false_percent(said, first, truth, question)


def _without_asked(said: str, number: str, question: str) -> str:
    """A text without a value where it stands as in the question: "below 5 percent"."""
    same = re.findall(rf"(?<![\d.-]){re.escape(number)}(?: ?[a-z]+| ?[\u4e00-\u9fff])", question)
    return re.sub(rf"(?<![\d.-])(?:{'|'.join(map(re.escape, same))})", " ", said) if same else said


def _told_once(said: str, truth: Truth, question: str) -> str:
    """A text without what tells a number of the truth once more, rounded or in another unit."""
    numbers = [float(number[0]) for value in truth.values if (number := NUMBER.match(value))]
    told = [float(number) for number in NUMBER.findall(said)]
    told = [number for number in numbers if any(is_same(one, number) for one in told)]
    return without_again(said, told, unit_of(question, truth.values[0], truth.columns))


def _without_end_of_month(said: str, date: str) -> str:
    """A text without "the end of June 2025" beside the date that this is."""
    year, month, day = map(int, date[:10].split("-"))
    if date[:10] not in said or day < monthrange(year, month)[1]:
        return said
    name = rf"{MONTHS[month - 1][:3]}(?:{MONTHS[month - 1][3:]})?"
    end = rf"\b(?:the )?(?:end|last day) of {name}(?: {year})?\b|{year}年{month}月(?:底|末)"
    return re.sub(end, " ", said)


def with_zeros(said: str, question: str) -> str:
    """A text with 0 for each clause that says that there is none of what the question counts."""
    said = NONE.sub(lambda none: _zero(none, question), said)
    ends = [0, *(end.end() for end in CLAUSE_END.finditer(said)), len(said)]
    pieces = [said[start:end] for start, end in pairwise(ends)]
    clauses = [piece.strip(" \n.:;,、。") for piece in pieces]
    return "".join(
        piece.replace(clause, " 0 ") if len(clause) > 2 and says_nothing_is(clause, question) else piece
        for piece, clause in zip(pieces, clauses, strict=True)
    )


def says_nothing_is(clause: str, question: str) -> bool:
    """Whether a clause says that what the question asks for is not there, or that a query found none."""
    if EMPTY.search(clause):
        return not DOUBTS.search(clause) and not FRAME.read(EMPTY.sub(" ", clause))[1]
    if not DENIALS.search(clause) or FEW.search(clause):
        return False
    return verdict([f",{clause}"], question) is False  # what denies is no answer by itself


def _zero(none: re.Match[str], question: str) -> str:
    counted = none[1]
    is_asked = stem(counted) in content_of(question) if counted.isascii() and counted else counted in question
    return f" 0 {counted}" if is_asked else none[0]


def _as_number(said: str, number: str, truth: Truth, question: str) -> str:
    """A text with what it tells in another way of a number: one in eight for 12.5 percent, in its own unit, a fall."""
    first = truth.values[0]
    if PERCENT.search(" ".join([question, first, *truth.columns])):
        percent = float(number) * (100 if abs(float(number)) <= 1 and "." in number else 1)
        said = SHARE.sub(lambda share: f" {percent:.10g} percent " if _is_share(share, percent) else share[0], said)
    if number.startswith("-"):
        said = re.sub(rf"({FALLS})(?={number[1:]}(?![.\d]))", r"\1 -", said)
    return in_unit(said, unit_of(question, first, truth.columns), question)


def _is_share(share: re.Match[str], percent: float) -> bool:
    part, whole = (
        int(share[name] or share[zh] or share[each] or 0)
        for name, zh, each in (("part", "part_zh", "some"), ("whole", "whole_zh", "of_each"))
    )
    return bool(whole) and abs(100 * part / whole - percent) < SAME_SHARE


def _without_false_percent(said: str, value: str, truth: Truth, question: str) -> str:
    """A text without a share below 1 percent where that is what the value would be as one of a hundred: 0.9 is no
    0.9 %. What is asked for in percent is one where it stands in a column that is not named so."""
    named = [question] if not any(truth.columns) else truth.columns
    if not value.startswith("0.") or PERCENT.search(" ".join([*named, value])):
        return said
    return FALSE_PERCENT.sub(" ", said)


def _with_year(answer: str, question: str) -> str:
    """An answer whose days of no year are of the one that the question names, or else of the one that it has."""
    answer = YEAR_BEHIND.sub(r"\2年\1", answer)
    years = {*YEAR.findall(question)} or {date[:4] for date in DATE.findall(plain(answer))}
    if len(years) != 1:
        return answer
    year = years.pop()
    months = {*ASKED_MONTH.findall(question)}
    if len(months) == 1:
        answer = NTH.sub(rf"\g<1> {months.pop()}", answer)
    return DAY_ZH.sub(rf"{year}年\g<0>", DAY_EN.sub(rf"\g<0>, {year}", answer))


def _without_offer(answer: str, raw_question: str) -> str:
    """An answer without the offers at its end; with a new name one stays."""
    kept, offers = cut_offers(answer, frozenset(re.findall(r"\d+", raw_question)))
    return kept if capitalised(offers) <= capitalised(f"{kept} {raw_question}") | NO_NAMES else answer
