"""Another thing in the question's place: "manages the finance department" for procurement, "closed" for open, g for kg.

Units, days and the like stand in a list; opposites are those of the dictionaries. Where a sentence else repeats half of
the question or more, one thing that the question alone has and one that the sentence alone has are exchanged, unless
WordNet or the glosses of CC-CEDICT know them as the same. Guarantees: pure functions, linear in the answer. Not
covered: a sentence of other words; what is added to all words; a synonym that no dictionary has is another thing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Sequence, Set
from itertools import groupby, pairwise, product

from sql_agent.offline_judge.doubts import DENIALS, FREE, TALK, TALK_EN, TITLES
from sql_agent.offline_judge.lexicon import Lexicon, spell, tokens
from sql_agent.offline_judge.values import plain
from sql_agent.offline_judge.words import PHRASES, phrases
from sql_agent.words.meanings import (
    OF_GRAMMAR,
    is_chinese_verb,
    is_chinese_word,
    is_measure,
    is_opposite,
    n_senses,
    one_sense,
    same_meaning,
)

# A bar ends a list of words that exclude one another, strokes join what is the same.
UNITS = """
kg/kilo/kilogram/公斤/千克 g/gram t/ton/tonne lb/pound/磅 毫克 斤/市斤 oz/ounce/盎司 | euro/eur/欧元/€
dollar/usd/美元/$ pound/gbp/英镑/£ yuan/cny/rmb/人民币/元 yen/jpy/日元 franc/chf/法郎 krona/krone/sek/nok/dkk/克朗
rupee/inr/卢比 rouble/ruble/rub/卢布 guilder/nlg/盾 peso/mxn/比索 cent | m/metre/meter/米
km/kilometre/kilometer/公里/千米 cm/centimetre/centimeter/厘米 mm/millimetre/millimeter/毫米 mile/英里
foot/feet/ft/英尺 | hectare/ha/公顷 acre/英亩 亩 | minute/min/分钟 hour/小时/h second/sec/秒
| litre/liter/l ml/millilitre/milliliter/毫升
| per_night/a_night/nightly/每晚 per_day/a_day/each_day/every_day/daily/每天/每日 per_week/a_week/weekly/每周
per_fortnight/a_fortnight/fortnightly/每两周
per_month/monthly/每月 per_year/a_year/yearly/annual/每年 | kilobyte/kb megabyte/mb/兆 gigabyte/gb terabyte/tb |
watt/w/瓦 kilowatt/kw/千瓦 megawatt/mw/兆瓦 gigawatt/gw/吉瓦 hertz/hz/赫兹 khz/千赫 mhz/兆赫 ghz/吉赫
| kwh/kilowatt_hour/千瓦时/度电 mwh/megawatt_hour/兆瓦时 gwh/gigawatt_hour/吉瓦时 | arcsecond/角秒 arcminute/角分
| volt/v/伏 kilovolt/kv/千伏
| celsius/°c/摄氏度 fahrenheit/°f/华氏度 kelvin
"""
KINDS = """
monday tuesday wednesday thursday friday saturday sunday | 周一/星期一 周二/星期二 周三/星期三 周四/星期四 周五/星期五
周六/星期六 周日/周天/星期日/星期天 | january february march april june july august september october november december
| spring/春季/春天 summer/夏季/夏天 autumn/秋季/秋天 winter/冬季/冬天 | north/northern south/southern east/eastern
west/western | yesterday/昨天/昨日 today/今天/今日 tomorrow/明天/明日 前天 后天 | 去年 前年 今年 明年 | 上月/上个月
本月/这个月 下月/下个月 | least/fewest/lowest/smallest/minimum/最低/最小/最少 average/avg/平均 the_total/the_sum
highest/largest/biggest/greatest/maximum/max/最高/最大 | long/length/长度/全长 wide/width/宽度 deep/depth/深度
high/tall/height/高度/身高 | average/avg/mean/平均 median/中位数 total/合计/总计/总和
| first_quarter/q1/第1季度/1季度 second_quarter/q2/第2季度/2季度 third_quarter/q3/第3季度/3季度
fourth_quarter/q4/第4季度/4季度 | first_half/上半年 second_half/下半年
| last/latest/recent/newest/最近/最新/最后/最后1次 next/upcoming/下次/下1次 earliest/第1次/最早
"""
NEUTRAL = (
    "can could will would should not no or nor any some ever people person lack lacks missing without each every per "
    "due 要 得 会 能 过 着 位 名 任何 对 每 才 们 时间 人 元 块 年 号"
)
# Words of grammar, and how a word of an answer that is none of them says too many things to be another one.
OF_TIME_AND_DEGREE = "through over since then while still yet most more day"
MAX_ROW, MAX_NEW, MANY_SENSES = 3, 12, 8
LESS = ("least ", "less ")  # the opposite of an opposite
NUMBERED = re.compile(
    r"((?<![a-z])[a-z]+|[\u4e00-\u9fff]) ?(#+|\d+(?!\.?\d)(?: [a-z]\b)?|\b(?:[a-z]|[ivx]{2,4})\b) ?([\u4e00-\u9fff]?)"
)
AUXILIARY = "is|are|was|were|do|does|did|has|have|had|can|could|will|would|should"
ASKED = re.compile(  # what asks, with the noun behind which and what
    r"^(?:please )?(?:list|name|give|show|tell|rank|sort)(?: me)?\b|, ?[\w -]+ first$"
    r"|\b(?:how (?:many|much|long|often|old|high|deep|far|tall|big)|who(?:m|se)?|when|where"
    rf"|(?:which|what)(?: (?!(?:{AUXILIARY})\b)[a-z]+)?)\b"
    r"|(?:百分之)?(?:多[少大长高久远]钱?|几[个名位点月天年]?)|哪[\u4e00-\u9fff]|什么(?:时候)?|谁|怎么?样?|何[时地处]?"
    r"|是否|吗|呢|([^\d])[不没]\1|没有?$"
)
COUNTED = re.compile(r"\bhow many ([a-z]+)")
ASIDE = re.compile(r" (?:of|in|at|on|from) ((?:the |an? )?[\w ]+)\W*$")  # what a question ends with
WHICH = re.compile(r"哪[1几]?[^\W天年月日里儿]|什么(?!时候)")  # the next word is the noun
COMPARES = re.compile(r"\bthan\b|比(?!赛)|超过")
DEGREE = re.compile(r"\b(?:more|less|[a-z]{2,}er)\b|[更较]")
MEASURED = re.compile("#[# ]*(?:([\u4e00-\u9fff])(?=[\u4e00-\u9fff]))?")
HAN = re.compile("[\u4e00-\u9fff]+")
PASSIVE = re.compile(r"\b(?:is|are|was|were|been|being|be|by)\b|[是被由给让从]")


@functools.lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """An English word without its endings: pounds as pound."""
    return re.sub(r"(?<=...)(?:ed|ing|e|d)$", "", re.sub(r"(?<=...)s$", "", word)) if word.isascii() else word


def _stems(text: str) -> str:
    return " ".join(stem(match[0]) for match in tokens(text))


_ALIKE = [
    [{_stems(plain(word.replace("_", " "))) for word in same.split("/")} for same in words.split()]
    for words in f"{UNITS}|{KINDS}".split("|")
]
JANUARY, MAY = "january", "may"  # a month that is a word of any sentence, and among none of a kind
_TIMES = [words for words in _ALIKE if {"monday", "周 1", JANUARY, "winter"} & set[str]().union(*words)]
SAME = {word: same for words in _ALIKE for same in words for word in same}
_UNITS = frozenset(_stems(plain(UNITS.replace("_", " "))).split())
_KINDS = Lexicon(SAME)
NEUTRAL_WORDS = frozenset(map(stem, NEUTRAL.split())) | {*phrases(f"{TALK} {PHRASES} {TITLES}")} - {*phrases(TALK_EN)}
LIGHT = frozenset(_stems(FREE).split())
COMMON = frozenset("#") | frozenset(_stems(f"{FREE} {TITLES} {TALK_EN} {OF_TIME_AND_DEGREE}").split()) | NEUTRAL_WORDS
LIGHT_WORDS = LIGHT | NEUTRAL_WORDS


def is_other_kind(asked: str, said: str) -> bool:
    """Whether the answer has another of a kind than the question, or another number behind the same word (and before
    the same, in Chinese), and the question's nowhere. Signs of money may stand in them."""
    ours, theirs = ({word.strip() for *_, word in _KINDS.read(_stems(text))[0]} for text in (asked, said))
    for words in _ALIKE:
        mine, told = ([same for same in words if same & text] for text in (ours, theirs))
        if mine and told and not any(same in told for same in mine):
            return True
    ours, theirs = (
        {(m[1] + m[3], m[2]) for m in NUMBERED.finditer(text) if stem(m[1]) not in COMMON} for text in (asked, said)
    )
    numbers, told = {number for _, number in ours}, spell(said)
    new = {(word, "#" in number) for word, number in theirs if number not in numbers}
    new |= {(word, True) for word, number in theirs - ours if f" {number} " in spell(asked)}  # exchanged
    return any((word, f" {number} " in told) in new for word, number in ours - theirs if number != "a")


def is_rivalled(forms: Collection[str], asked: str, said: str) -> bool:
    """Whether beside a value, a day of the week, a month or a season in one of these forms, another one is told."""
    ours, theirs = ({word.strip() for *_, word in _KINDS.read(_stems(text))[0]} for text in (asked, said))
    value = {_stems(one) for one in forms}
    for words in _TIMES:
        if any(value & same for same in words) or (MAY in value and JANUARY in set[str]().union(*words)):
            return any(same & theirs - ours for same in words if not value & same)
    return False


def opposites(asked: str, said: str) -> list[tuple[int, int, str]]:
    """Where a text says the opposite of a word that the question alone has: start, end and that word."""
    theirs = terms(said)
    had, told = ({stem(one) for _, _, one in terms} for terms in (terms(asked), theirs))
    asks = terms(ASKED.sub("#", asked))
    lost = [one for _, _, one in asks if stem(one) not in told and (one.isascii() or one not in said)]
    return [
        (start, end, gone[0])
        for start, end, one in theirs
        if stem(one) not in had
        and not said[:start].endswith(LESS)
        and (gone := [word for word in lost if is_opposite(word, one)])
        and not any(one_sense(word, one) for *_, word in asks)  # low: the lowest
    ]


def _spans(text: str) -> Iterator[tuple[int, int, str]]:
    """The tokens of a text; Chinese words of the dictionary, the longest at each place from the left."""
    after = 0
    for match in tokens(text):
        start, end = match.span()
        if start >= after:
            ends = [one for one in range(start + 4, end, -1) if not match[0].isascii() and "了" not in text[end:one]]
            after = next((one for one in ends if is_chinese_word(text[start:one].removeprefix("最"))), end)
            yield start, after, text[start:after]


def terms(text: str) -> list[tuple[int, int, str]]:
    """The words of a text but the lightest, and Chinese ones of one character."""
    english = [(one.start(), one.end(), one[0]) for one in re.finditer("[a-z]+", text) if stem(one[0]) not in LIGHT]
    return [*english, *(one for one in _spans(text) if len(one[2]) > 1 and not one[2].isascii())]


def content(text: str) -> set[str]:
    """English words that say something, and what stands side by side in Chinese."""
    pairs = ("".join(pair) for run in HAN.findall(text) for pair in pairwise(run))
    return {one for *_, one in terms(text) if one.isascii()} | {one for one in pairs if OF_GRAMMAR.isdisjoint(one)}


def is_turned(asked: str, clause: str, names: Set[str] = frozenset()) -> bool:
    """Whether a clause says two of the question's words (or `names`, where there are some) on either side of a third
    the other way: B beat A for A beat B."""
    if bool(PASSIVE.search(asked)) is not bool(PASSIVE.search(clause)):
        return False
    ours, place = _words(asked), dict[str, int]()
    for n, word in enumerate(_words(clause)):
        place.setdefault(_known_as(word, ours), n)
    ours = [one for one in ours if one in place]
    for n, word in enumerate(ours):
        before, behind = (
            [place[one] > place[word] for one in side if not names or one in names]
            for side in (ours[:n], ours[n + 1 :])
        )
        if word not in names and any(before) and not all(behind):
            return True
    return False


def is_other_way(asked: str, clause: str) -> bool:
    """Whether a clause has the sides of a comparison the other way round: what the question has behind "than" comes
    first, or is alone beside a word of degree."""
    first, second, here, *behind = (
        [one[0] for one in tokens(part) if stem(one[0]) not in LIGHT_WORDS]
        for text in (asked, clause)
        for part in COMPARES.split(text, maxsplit=1)
    )
    sides = [next((one for one in a if one not in b), "") for a, b in ((first, second), (second, first))]
    if not sides[1] or sides[1] not in here:
        return False
    if behind:
        return next((one for one in behind[0] if one in {*first} ^ {*second}), "") in first
    return sides[0] not in here and bool(DEGREE.search(clause))


def is_exchanged(asked: str, clause: str, said: str, spare: frozenset[str] = frozenset()) -> bool:
    """Whether a clause, with # for the truths, repeats half of the question or more, and tells one other thing in the
    place of one that the answer `said` has nowhere: no form of it, and nothing that may mean the same. An English word
    of few senses is another thing beside the same word, other ones between the same words alone; in Chinese it may be
    several words. What is counted is another thing whatever else its word says. What is an English opposite judges
    `opposites`. The question's words in `spare` may be left out."""
    theirs = _words(clause)
    return any(_is_exchanged(asked, *one, theirs, clause) for one in _gone(asked, said, spare))


def _is_exchanged(asked: str, ours: Sequence[str], gone: Sequence[str], theirs: Sequence[str], clause: str) -> bool:
    known = _words(asked)
    new = [one for one in theirs if stem(one) not in COMMON and _known_as(one, known) not in known]
    if not gone or len(new) > MAX_NEW:
        return False
    if not any(stem(one) in _UNITS for one in gone):
        new = [one for one in new if stem(one) not in _UNITS]
    gone, new = (
        [one for one in some if not any(same_meaning(*sorted((one, other))) for other in others)]
        for some, others in ((gone, new), (new, gone))
    )
    most, rows = (1 if asked.isascii() else MAX_ROW), _rows(ours, gone)
    if not gone or not new or 2 * len(gone) > sum(one not in "#…" for one in ours) or len(rows) > 1 < most:
        return False
    kept = [one for one in theirs if one in new or one == "#" or _known_as(one, ours) in ours]
    for lost, told in product(rows, _rows(kept, new) if {*kept} - {*new} else ()):
        if lost[0] in COUNTED.findall(asked) and f"# {told[0]}" in clause:
            return True
        if max(len(lost), len(told)) > most or (is_opposite(lost[0], told[0]) if most == 1 else _may_mean(lost, told)):
            continue
        our_words, their_words = (
            [one for one in of if one != "#" and (one in row or one not in new)]
            for of, row in ((ours, lost), (kept, told))
        )
        is_left, is_right = _is_beside(our_words, their_words, lost, told)
        if is_left and is_right and len(their_words) > len(told):
            return True
        is_unit = _sides(kept, told)[0] == "#" != _sides(ours, lost)[0]  # that the question does not name
        is_alone = len(gone) == len(new) == most and n_senses(told[0]) < MANY_SENSES and not told[0].endswith("ly")
        if is_alone and not is_unit and (is_left or is_right or any(_is_beside(ours, kept, lost, told))):
            return True
    return False


def _rows(words: Sequence[str], of: Sequence[str]) -> list[list[str]]:
    """The runs of words that are among these."""
    return [[*row] for is_one, row in groupby(words, of.__contains__) if is_one]


@functools.lru_cache(maxsize=1024)
def _gone(asked: str, said: str, spare: frozenset[str]) -> list[tuple[list[str], list[str]]]:
    """The words of a question, with # for what it asks for, and those of them that an answer has in no form. None of
    the spare words, which may be left out; where all that it ends with is gone, also without that."""
    words = _words(ASKED.sub("#", WHICH.sub("@", asked.rstrip("?. 。"))))
    ours = [one for before, one in pairwise(["", *words]) if before != "@" and one != "@"]
    told = {*_words(said), *(token[0] for token in tokens(said) if token[0].isascii())}
    gone = [one for one in dict.fromkeys(ours) if one != "#" and not any(is_form(other, one) for other in told)]
    end = {*_words(" ".join(ASIDE.findall(asked)))}
    variants = [({*spare} & {*gone}, [])]
    variants += [({*spare} & {*gone} | end, ["…"])] if end and end <= {*gone} else []
    return [
        ([*(one for one in ours if one not in less), *mark], [one for one in gone if one not in less])
        for less, mark in variants
    ]


def _known_as(word: str, known: Sequence[str]) -> str:
    """The known word that a word is a form of; itself where there is none."""
    return next((one for one in known if is_form(word, one)), word)


def _is_beside(ours: Sequence[str], theirs: Sequence[str], gone: Sequence[str], new: Sequence[str]) -> list[bool]:
    """Whether the same stands before two rows of words, and behind them."""
    sides = zip(_sides(ours, gone), _sides(theirs, new), strict=True)
    return [bool(left) and is_form(right, left) for left, right in sides]


def _sides(words: Sequence[str], row: Sequence[str]) -> tuple[str, str]:
    """What stands before and behind a row of words; nothing where they stand in no row."""
    told, n = ["^", *words, "$"], len(row)
    places = (at for at in range(1, len(told) - n) if told[at : at + n] == [*row])
    return next(((told[at - 1], told[at + n]) for at in places), ("", ""))


def _may_mean(gone: Sequence[str], new: Sequence[str]) -> bool:
    """Whether Chinese words may be short for others, as 首演 for 首次演出 (and 决赛 is not for 半决赛), or may say in
    another way what is done: as a verb that is longer or shorter."""
    one, other = "".join(gone), "".join(new)
    is_done = len(one) != len(other) and any(map(is_chinese_verb, (*gone, *new)))
    is_there = one.endswith("有") and other.endswith("有")  # 共有, 设有
    return is_done or is_there or {*other} <= {*one} or (one not in other and {*one} <= {*other})


def _words(text: str) -> list[str]:
    """The words that say something."""
    text = MEASURED.sub(_beside_measure, re.sub(r"(?<=\d)年", "年 ", DENIALS.sub(" ", text)))
    told = (one for *_, one in _spans(text))
    return [one for one in told if stem(one) not in LIGHT_WORDS and not one.isdecimal() and one != "?"]


def _beside_measure(value: re.Match[str]) -> str:
    """A value's sign, and apart from what is counted the character that stands between."""
    return f" # {value[1]} " if value[1] and is_measure(value[1]) else f" # {value[1] or ''}"


def is_form(one: str, other: str) -> bool:
    """Whether a word is a form of another, as open and opened, fall and fell, restored and restorer, or on a list so; a
    Chinese one where it is a part of the other or begins so, as 站 of 车站 and 三月份 of 三月."""
    one, other = stem(one), stem(other)
    short, same = min(len(one), len(other)), max(4, min(len(one), len(other)) - 2)
    bones = [word[:1] + re.sub(r"[aeiouy]", "", word[1:]) for word in (one, other)]
    is_bent = (short > 3 and one[:same] == other[:same]) or (len(one) == len(other) > 2 and bones[0] == bones[1])
    is_part = not one.isascii() and (one in other or one.startswith(other))
    return one == other or other in SAME.get(one, ()) or is_bent or is_part
