"""Typed answers: where the truth is a number, a date, yes or no, a name or a list of them, in a sentence of any words.

A sentence around the truth costs nothing; another value of its kind, an alternative, a doubt, a denial, a name that
nobody asked for and a second sentence of other words make it wrong. Guarantees: pure functions, linear in the text.
Not covered: a denial in words of no list; one amount in two units; rounding.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from sql_agent.offline_judge.lexicon import spell
from sql_agent.offline_judge.normal import normalise

WRONG = 0.0
MAX_CHARS, MAX_WORDS, MAX_ITEMS = 60, 6, 30  # of a truth; longer ones are no values
BEFORE, BEHIND = 12, 4  # words, or Chinese characters by two, that may stand around a truth in its sentence
HEDGES = re.compile(
    r"[?？]|[或猜谣假谎]|还是|要么|可能|也许|大概|恐怕|大约|左右|至少|至多|似乎|难道|据说|当真|错误|有误|相反|\b(?:or|either|maybe|perhaps"
    r"|possibl[ey]|probabl[ey]|might|may|could|about|around|approximately|roughly|nearly|almost|over|under|more than"
    r"|less than|at least|at most|between|unsure|guess\w*|seems?|doubt\w*|unclear|unknown|allegedly|supposedly"
    r"|rumou?r\w*|lies?|lying|false|fake|myth|joke|untrue|wrong|incorrect|mistake\w*|wait|actually|sorry|instead"
    r"|rather|except|versus)\b"
)
DENIALS = re.compile(r"[不没非无未否]|\b(?:no|not|never|none|neither|nor|cannot|\w+n t)\b")
YES, NO = {"yes", "true", "是", "是的", "对"}, {"no", "false", "否", "不是", "不对"}
SAYS_YES, SAYS_NO = (
    re.compile(r"\W*(?:yes|true|是|对|有|可以)(?![a-z])"),
    re.compile(r"\W*(?:no|false|否|不|没)(?![a-z])"),
)
NUMBER = re.compile(r"(?<![a-z0-9.\-])(-?\d+(?:\.\d+)?)(?:%|(?=[^\d.]|\.(?!\d)|$))([a-z]*)")
SEPARATOR = re.compile(r"\s*(?:[,;、，；\n|]|\band\b|和)\s*", re.I)
ORDER = re.compile(r"顺序|次序|依次|排序|排列|从.{1,6}到|\b(?:order(?:ed)?|rank(?:ed)?|sort(?:ed)?|top|from .+ to)\b")
SENTENCE_END = re.compile(r"[。!\n;]|\.(?!\d)")
FREE = frozenset(
    re.findall(
        r"\w+",
        "the a an is are was were be been has have had does do did of in on at by to for with and there it its this"
        " that they which who what total all according database result results record records answer final query based"
        " shows show here as i found hope helps hello them these so from namely following named called",
    )
)
ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
NAMED = {word: n for n, word in enumerate(re.findall(r"\w+", f"{ONES} eighteen nineteen"))}
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
NAMED |= {word: 10 * n for n, word in enumerate(re.findall(r"\w+", TENS), 2)}
SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
NUMERAL = re.compile(rf"\b(?:{'|'.join(NAMED)})(?:[ -](?:and )?(?:{'|'.join([*NAMED, *SCALES])}))*\b")
MONTHS = re.findall(r"\w+", "january february march april may june july august september october november december")
MONTH = "|".join(f"{month[:3]}(?:{month[3:]})?\\.?" for month in MONTHS)
DATES = [
    re.compile(r"(?P<y>\d{4})[-/.年](?P<m>\d{1,2})[-/.月](?P<d>\d{1,2})日?(?:[t ]\d\d:\d\d(?::\d\d)?)?"),
    re.compile(rf"(?P<d>\d{{1,2}})(?:st|nd|rd|th)? (?:of )?(?P<m>{MONTH}),? ?(?P<y>\d{{4}})"),
    re.compile(rf"(?P<m>{MONTH}) (?P<d>\d{{1,2}})(?:st|nd|rd|th)?,? ?(?P<y>\d{{4}})"),
]


def typed_value(*, question: str, reference: str, evidence: Sequence[str], answer: str) -> float | None:
    """What the answer earns; None where the truth is no value."""
    truths = _truths(question, reference, evidence)
    if not truths:
        return None
    asked, said = _plain(question), _plain(answer)
    if len(truths) == 1 and truths[0] in YES | NO:
        return float(_polarity(said, asked) == (truths[0] in YES))
    if len(truths) == 1 and (day := _dates(truths[0])) and day[0][1] == truths[0]:
        told = _dates(said)
        wanted = {day[0][0]} == {one for one, _ in told}
        return float(wanted and _is_plain(said, [text for _, text in told], asked, answer))
    if len(truths) == 1 and (number := NUMBER.fullmatch(truths[0].lstrip("$€£¥ "))):
        return float(_says_number(said, number, asked) and _is_plain(said, [], asked, answer))
    return _names(said, truths, asked, answer)


def is_value(*, question: str, reference: str, evidence: Sequence[str]) -> bool:
    """Whether the truth is a value, or a few of them."""
    return bool(_truths(question, reference, evidence))


def _truths(question: str, reference: str, evidence: Sequence[str]) -> list[str]:
    """The values of the reference, else those of the cells, where they are such; in the same form as the answer."""
    asked = _plain(question)
    cells = [one for quote in evidence if spell(one := _plain(quote)) not in spell(asked)]
    is_value = reference and not re.search(r"[:：。\n!?]|\.\s", reference)
    read = asked.isascii() or all(NUMBER.fullmatch(one) or _dates(one) for one in cells)
    if cells and read and all(spell(one) in spell(_plain(reference)) or not reference for one in cells):
        told = cells  # what the query found; the reference says it in a sentence
    else:
        told = [reference] if is_value and _dates(_plain(reference)) else SEPARATOR.split(reference) if is_value else []
    values = list(dict.fromkeys(filter(None, (_plain(one).strip(" .[]\"'") for one in told))))
    han = any("\u4e00" <= char <= "\u9fff" for value in values for char in value) and not {*values} & (YES | NO)
    long = any(len(v) > MAX_CHARS or len(v.split()) > MAX_WORDS for v in values) or len(values) > MAX_ITEMS
    known = any(spell(value) in spell(asked) for value in values)
    return [] if long or known or (han and (len(values) > 1 or evidence)) else values


def _plain(text: str) -> str:
    """The judge's normal form, with numbers in digits; commas and blanks stay."""
    text = re.sub(r"一(?=[共起样定直般些下])", "", unicodedata.normalize("NFKC", text))  # 一共 counts nothing
    text = normalise(re.sub(r"(?<=\w)['’](?=\w)", " ", text))
    text = NUMERAL.sub(lambda match: str(_in_digits(match[0])), text)
    return re.sub(
        r"(\d+(?:\.\d+)?) ?(thousand|million|billion)\b", lambda m: f"{float(m[1]) * SCALES[m[2]]:.15g}", text
    )


def _in_digits(numeral: str) -> int:
    total, part = 0, 0
    for word in re.findall(r"[a-z]+", numeral):
        if word in NAMED:
            part += NAMED[word]
        elif word == "hundred":
            part *= 100
        elif word in SCALES:
            total, part = total + part * SCALES[word], 0
    return total + part


def _dates(text: str) -> list[tuple[tuple[int, int, int], str]]:
    found = []
    for match in (match for pattern in DATES for match in pattern.finditer(text)):
        month = match["m"]
        n = int(month) if month.isdecimal() else next(i for i, name in enumerate(MONTHS, 1) if name[:3] == month[:3])
        found.append(((int(match["y"]), n, int(match["d"])), match[0]))
    return found


def _says_number(said: str, number: re.Match[str], asked: str) -> bool:
    """Whether the truth is the one number of the answer that the question has not."""
    given = {float(match[1]) for match in NUMBER.finditer(asked)} - {float(number[1])}
    told = [match for match in NUMBER.finditer(said) if float(match[1]) not in given]
    units = {match[2] for match in told} - {""}
    return {float(match[1]) for match in told} == {float(number[1])} and (not number[2] or units <= {number[2]})


def _polarity(said: str, asked: str) -> bool | None:
    """What the answer says to a question of yes or no; None where it doubts or says both."""
    denied = DENIALS.search(DENIALS.sub("", said, count=1) if SAYS_NO.match(said) else said)
    shared = {*spell(said).split()} & {*spell(asked).split()} - FREE
    if HEDGES.search(said.replace("false", "no")) or (SAYS_YES.match(said) and denied and not DENIALS.search(asked)):
        return None
    if SAYS_YES.match(said) or SAYS_NO.match(said):
        return SAYS_NO.match(said) is None
    return not DENIALS.search(said) if shared else None


def _is_plain(said: str, truths: Sequence[str], asked: str, answer: str) -> bool:
    """Whether nothing around the truths doubts, denies, or tells of something else."""
    rest = said
    for truth in truths:
        rest = rest.replace(truth, " ")
    words = {*spell(asked).split(), *spell(" ".join(truths)).split()} | FREE
    doubts = {*HEDGES.findall(rest), *DENIALS.findall(rest)} - {
        *HEDGES.findall(asked.rstrip("?")),
        *DENIALS.findall(asked),
    }
    strange = [
        word for word in re.findall(r"(?<![.!?] )(?<!^)(?<!\n)\b[A-Z][a-z]+", answer) if word.lower() not in words
    ]
    return (
        not doubts
        and not strange
        and all(_is_short(one, truths, words) for one in SENTENCE_END.split(said.replace(":\n", ":")))
    )


def _is_short(sentence: str, truths: Sequence[str], words: set[str]) -> bool:
    """Few unknown words before and behind a truth, and none in a sentence without one."""
    marks = [(match.start(), match.end()) for t in truths for match in re.finditer(re.escape(t), sentence)]
    marks = marks or [match.span() for match in NUMBER.finditer(sentence) if not truths]
    if not marks:
        return not _unknown(sentence, words) or not re.search(r"\w", sentence)
    before, behind = sentence[: min(marks)[0]], sentence[max(end for _, end in marks) :]
    return _unknown(before, words) <= BEFORE and _unknown(behind, words) <= BEHIND


def _unknown(text: str, words: set[str]) -> float:
    return sum(0.5 if "\u4e00" <= word[0] <= "\u9fff" else 1 for word in spell(text).split() if word not in words)


def _names(said: str, truths: Sequence[str], asked: str, answer: str) -> float:
    """F1 of the values that are told, where nothing else is; in their order where the question asks for one."""
    said = re.sub(r"(?<![\w.])\d{1,2}[.)](?=[a-z])", " ", said)  # marks of items in one line
    told = {t: at for t in truths if (at := spell(said).find(spell(t))) >= 0}
    extra = {*re.findall(r"\d+", said)} - {*re.findall(r"\d+", f"{asked} {' '.join(truths)}"), str(len(truths))}
    texts = [*told]
    if not told or extra or not _is_plain(said, texts, asked, answer) or _adds(said, texts, asked):
        return WRONG
    if ORDER.search(asked) and list(told.values()) != sorted(told.values()):
        return WRONG
    return 2 * len(told) / (len(told) + len(truths))


def _adds(said: str, truths: Sequence[str], asked: str) -> bool:
    """Whether a list goes on with something that is neither a truth nor a word of the question."""
    known = {*spell(asked).split(), *FREE}
    for truth in truths:
        for match in re.finditer(re.escape(truth), said):
            after = re.match(r"\s*(?:,|;|、|\band\b|和|与|及)\s*(?:and )?([a-z]+|[^\W\d_])", said[match.end() :])
            prior = re.search(r"([a-z]+)\s*(?:\band|&)\s*$", said[: match.start()])
            for word in (m[1] for m in (after, prior) if m):
                if word not in known and not any(spell(t).startswith(f" {word} ") or word in t for t in truths):
                    return True
    return False
