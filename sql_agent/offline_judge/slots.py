"""Another thing in the question's place: "manages the finance department" for procurement, "closed" for open, g for kg.

Units, days and the like stand in a list; opposites are those of the dictionaries. Of other words, one that the question
alone has is gone, one that the clause alone has is new; between the same words a new one replaces one that is gone, and
where these two alone differ, beside one of them, unless WordNet knows the two as synonyms. Guarantees: pure functions.
Not covered: other Chinese words; a sentence of other words; a synonym that WordNet does not know is another thing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from itertools import product

from sql_agent.offline_judge.doubts import FRAMES, FREE, TITLES
from sql_agent.offline_judge.lexicon import Lexicon, tokens
from sql_agent.offline_judge.values import plain
from sql_agent.words.meanings import is_chinese_word, is_opposite, same_meaning

# A bar ends a list of words that exclude one another, strokes join what is the same.
KINDS = """
kg/kilo/kilogram/公斤/千克 g/gram t/ton/tonne lb/pound/磅 毫克 oz/ounce/盎司 | euro/eur/欧元 dollar/usd/美元
pound/gbp/英镑 yuan/cny/rmb/人民币 yen/日元 cent | m/metre/meter/米 km/kilometre/kilometer/公里/千米
cm/centimetre/centimeter/厘米 mm/millimetre/millimeter/毫米 mile/英里 foot/feet/英尺 | minute/min/分钟 hour/小时 |
litre/liter ml/millilitre/milliliter/毫升 | per_day/a_day/each_day/every_day/daily/每天/每日
per_week/a_week/weekly/每周 per_month/monthly/每月 per_year/a_year/yearly/annual/每年 | monday tuesday wednesday
thursday friday saturday sunday | 周一/星期一 周二/星期二 周三/星期三 周四/星期四 周五/星期五 周六/星期六
周日/周天/星期日/星期天 | january february march april june july august september october november december |
spring/春季/春天 summer/夏季/夏天 autumn/秋季/秋天 winter/冬季/冬天 | north/northern south/southern east/eastern
west/western | yesterday/昨天/昨日 today/今天/今日 tomorrow/明天/明日 前天 后天 | 去年 前年 今年 明年 | 上月/上个月
本月/这个月 下月/下个月 | least/fewest/lowest/smallest | highest/largest/biggest/greatest
"""
NEUTRAL = (
    "can could will would should not no or nor any some ever people person lack lacks missing without each every per"
)
LESS = ("least ", "less ")  # the opposite of an opposite
NUMBERED = re.compile(r"([a-z]+|[\u4e00-\u9fff]) ?(\d+)(?![\d.]) ?([\u4e00-\u9fff]?)")
ARTICLES = {"the", "a", "an", "its", "their", "his", "her", "our", "this", "that"}
PREPOSITIONS = {"of", "in", "on", "at", "for", "to", "by", "with", "from", "per", "under", "over"}
ASKED = re.compile(
    r"\b(?:how (?:many|much|long|often|old|high|deep|far|tall|big)|who(?:m|se)?|which|what|when|where)\b"
    r"|多[少大长高久远]|什么"
)


def stem(word: str) -> str:
    """An English word without its ending."""
    return re.sub(r"(?<=...)(?:ies|es|s|ed|ing|e|d)$", "", word) if word.isascii() else word


def _stems(text: str) -> str:
    return " ".join(stem(match[0]) for match in tokens(text))


_ALIKE = [
    [{_stems(plain(word.replace("_", " "))) for word in same.split("/")} for same in words.split()]
    for words in KINDS.split("|")
]
_SAME = {word: same for words in _ALIKE for same in words for word in same}
_KINDS = Lexicon(_SAME)
LIGHT = frozenset(_stems(FREE).split())
COMMON = frozenset(_stems(f"{FREE} {TITLES} {FRAMES} {NEUTRAL}").split())


def is_other_kind(asked: str, said: str) -> bool:
    """Whether the answer has another of a kind than the question, or another number behind the same word (and before
    the same, in Chinese), and the question's nowhere."""
    ours, theirs = ({word.strip() for *_, word in _KINDS.read(_stems(text))[0]} for text in (asked, said))
    for words in _ALIKE:
        mine, told = ([same for same in words if same & text] for text in (ours, theirs))
        if mine and told and not any(same in told for same in mine):
            return True
    ours, theirs = ({(m[1] + m[3], m[2]) for m in NUMBERED.finditer(text) if _carries(m[1])} for text in (asked, said))
    numbers, told = {number for _, number in ours}, {token[0] for token in tokens(said)}
    new = {word for word, number in theirs if number not in numbers}
    return any(word in new and number not in told for word, number in ours)


def opposites(asked: str, said: str) -> list[tuple[int, int, str]]:
    """Where a text says the opposite of a word that the question alone has: start, end and that word."""
    theirs = _terms(said)
    had, told = ({stem(one) for _, _, one in terms} for terms in (_terms(asked), theirs))
    asks = _terms(ASKED.sub("#", asked))
    lost = [one for _, _, one in asks if stem(one) not in told and (one.isascii() or one not in said)]
    return [
        (start, end, gone[0])
        for start, end, one in theirs
        if stem(one) not in had
        and not said[:start].endswith(LESS)
        and (gone := [word for word in lost if is_opposite(word, one)])
    ]


def _terms(text: str) -> list[tuple[int, int, str]]:
    """The words of a text but the lightest; Chinese ones of the dictionary, the longest at each place from the left."""
    english = re.finditer("[a-z]+", text)
    found = [(one.start(), one.end(), one[0]) for one in english if stem(one[0]) not in LIGHT]
    at = 0
    while at < len(text):
        ends = range(min(at + 4, len(text)), at + 1, -1)
        end = next((end for end in ends if is_chinese_word(text[at:end].removeprefix("最"))), at + 1)
        found += [(at, end, text[at:end])] if end > at + 1 else []
        at = end
    return found


def is_replaced(asked: str, clause: str, said: str, names: Set[str] = frozenset()) -> bool:
    """Whether an English clause, with # for the truths, has something else in the place of a word of the question that
    the answer `said` has nowhere; `names` are the words of both with a capital."""
    ours, theirs = _words(ASKED.sub("#", asked.rstrip("?"))), _words(clause)
    gone, new = _strange(ours, _words(said)), _strange(theirs, ours)
    is_near = len(gone) == len(new) == 1
    for i, j in product(gone, new) if clause.isascii() else ():
        (left, lost, right), (before, one, behind) = ours[i - 1 : i + 2], theirs[j - 1 : j + 2]
        is_left, is_right = left != "^" and _is_form(left, before), _is_form(right, behind)
        is_end = not any(map(_carries, (left, right, behind))) and (is_left or {left, before} <= PREPOSITIONS)
        is_before = is_right and _carries(right) and (is_near or {lost, one} <= names)
        if ((is_left and is_right) or (is_near and is_end) or is_before) and not same_meaning(lost, one):
            return True
    return False


def _words(text: str) -> list[str]:
    """The words between ^ and $, without articles; one # for a run of them."""
    told = [match[0] for match in tokens(text) if match[0] not in ARTICLES]
    return ["^", *(one for n, one in enumerate(told) if one != "#" or told[n - 1 : n] != ["#"]), "$"]


def _carries(word: str) -> bool:
    """Whether a word says something by itself."""
    return word not in "^#$" and stem(word) not in COMMON and not word.isdecimal()


def _strange(told: Sequence[str], known: Sequence[str]) -> list[int]:
    """Where words stand that are not among the known ones in any form."""
    return [n for n, one in enumerate(told) if _carries(one) and not any(_is_form(one, other) for other in known)]


def _is_form(one: str, other: str) -> bool:
    """Whether two words are forms of one, as open and opened, fall and fell, restored and restorer, or on a list so."""
    one, other = stem(one), stem(other)
    short, same = min(len(one), len(other)), max(4, min(len(one), len(other)) - 2)
    bones = [word[:1] + re.sub(r"[aeiouy]", "", word[1:]) for word in (one, other)]
    is_bent = (short > 3 and one[:same] == other[:same]) or (len(one) == len(other) > 2 and bones[0] == bones[1])
    return one == other or other in _SAME.get(one, ()) or is_bent
