"""What is told beside a value: how it was found, how it was calculated, and more about the same thing.

None of it is checked, and none of it earns: an aside is cut where it can be no other answer. It has no doubt, no denial
and no question in it, and nothing of the value's own form: beside a number no other of its unit or of what is counted,
beside a date no date, beside a name no other name but behind a preposition. Guarantees: pure functions, linear in the
text. Not covered: an aside in the clause that tells the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, permutations

from sql_agent.offline_judge.doubts import DENIALS, DOUBTS
from sql_agent.offline_judge.lexicon import tokens
from sql_agent.offline_judge.slots import COMMON, stem, terms
from sql_agent.offline_judge.units import AMOUNT, UNITS
from sql_agent.offline_judge.values import DATE, MONTH, NUMBER, TIME, plain
from sql_agent.records import AnswerType
from sql_agent.words.meanings import is_chinese_verb

PIECE_END = re.compile(
    r"(?<=[^\W\d])(?<!\b[A-Z])(?<!\b(?:Mr|Ms|Dr|St|No|no))\.(?=\s|$)|(?<=[\d*)`\"”])\.(?=\s+[^\W\d]|\s*$)"
    r"|[;!?。；！？，：\n]|[,:](?=\s)(?!\s*\d{4}\b)|\s[-–—]+\s|——|[()（）]"
)
PROCESS = re.compile(
    r"\b(?:quer(?:y|ies)|sql|tables?|columns?|database|data(?:set)?|records?|rows?|results?|schema|joins?|lookups?"
    r"|assumptions?|attempts?|tr(?:y|ies)|steps?|statements?|source)\b"
    r"|[a-z_]表|查[询了看得到遍一1]|经查|[我再]查|列名|[数依]据|假设|结果|语句|来源|记[录载]"
)
OF_PROCESS = re.compile(
    r"\b\d+ (?:more |sql |separate |simple )?(?:quer(?:y|ies)|tables?|columns?|records?|rows?|joins?|attempts?|times?"
    r"|tr(?:y|ies)|steps?|statements?|lookups?)\b|第?\d+[次遍条张个](?:sql|语句|查询|表|列|数据库|步)?"
)
NONE_NEEDED = re.compile(r"\bno (?:further |other |extra |additional )?(?:assumptions?|joins?)\b|无需|不[需必用]要?")
HOW = re.compile(r"^(?:at least )?(?=according|as far as|as (?:it|things) stand)")
ROUGH = {"about", "around", "approximately", "roughly", "over", "under", "nearly", "almost", "more than", "less than"}
ROUGH |= {"after", "before", "between", "above", "below", "约", "大约", "左右", "超过", "近", "but"}
YEAR = re.compile(r"\b(?:in|since|until|till|from|by|of|for|during|after|before|and) (?:19|20)\d\d\b|(?:19|20)\d\d年?")
PART_OF = re.compile(
    r"\b(\d[\d.]{0,15}) (?:out )?of (?:them|which|whom|these|those|whose)\b|其中[^\d]{0,6}(\d[\d.]{0,15})"
)
WHOLE = re.compile(
    r"\bof (?:the |its |their |all |a total of |[\w ]{1,20} s )?(\d[\d.]{0,15})"
    r"|(?<![\d.])(\d[\d.]{0,15})[^\W\d]{1,6}[里中]"
)
LABELLED = re.compile(r"(?:\b(?:no|number|nr|code|id|room|route|phone)\.? ?|[a-z]-|#|编号|号)\d[\w.-]*")
PREPOSITION = re.compile(
    r"(?:\b(?:in|at|on|from|of|for|under|near|behind|to|since|until|through|after|before|during|into|along|named|than)"
    r" (?:the |an? |its |their |his |her )?)$"
)
JOINS = re.compile(
    r"^(?:and|or|plus|also|as well|together|along|和|或|及|以及|还有|另外?|加上|也|又)"
    r"|\b(?:now|nowadays|currently|later|previous\w*|former\w*|replaced|changed|updated|revised|since then|originally"
    r"|initially|another|else|others?|postponed|moved|cancell?ed|rescheduled|delayed)\b"
    r"|[换改变]|现在|后来|以前|之前|原|起初|最初|曾|更新|调整|有[的些人]|[1另]说|实为|代替|取消|推迟|延期"
)
TELLS_ZH = re.compile(r"[是为叫由]|[也及]|还有|以及|改")
BEGINS_ZH = re.compile(r"(?:为了?|因为?|由于|其中|比|从|共|已|在|位于|排名?第)")
SECOND = re.compile(r"\b(?:second|third|runner-up|followed|trails?)\b|紧随|第[23]名|其次|仅次")
ORDINAL = re.compile(r"\b(?:second|third|fourth)[- ](?:\w+est|most)\b|第\d+")
VERB = re.compile(r"\b(?:is|are|was|were|did|does|has|had|came|won)\b")
LINKED = re.compile(rf"{VERB.pattern}|\b(?:in|at|on|from|of|with|for|by|since|until|under|than|to)\b")
ABOUT = re.compile(r"(?:\b(?:about|around|approximately|roughly|some|over|nearly)|[约近]) ?(\d[\d.]{0,15})")
CALCULATES = re.compile(
    r"\d ?[-+−*×/÷] ?\d|=|\b(?:sum\w*|total\w*|add\w*|together|altogether|minus|plus|times|divided|leav\w+|remain\w*)\b"
    r"|合计|[总一]?共|相?[加减]|去掉|[剩其]余|\d[^\d]+\d[^\d]+\d[^\d]+\d"
)
VALUE = re.compile(rf"{DATE.pattern}|{TIME}|{NUMBER.pattern}")
COUNT = re.compile(r"(?:with |[共约有] ?)?\d[\d.]{0,15} ?(?:[a-z]+|[^\W\d]{1,3})")
LATEST = re.compile(r"(?:最近|最后|另|每|某|同)1[\u4e00-\u9fff]|\bone\b")  # no amount
MISTAKES = {"but", "错", "修正", "改正", "更正", "纠正", "wrong", "mistake", "error", "errors", "sorry", "incorrect"}
LINKS = re.compile(r"is|are|was|were|or|and|to|in|for|on|at|the|an?|as|than|but|if|with|by|from|instead|[是或和到]")
FIRST_YEAR, NO_YEAR = 1900, 2100
EVALUATES = re.compile(
    r"\b(?:right|correct|true|accurate|certain|sure|confirmed|verified|valid|known|recorded|available|listed)\b"
    r"|\b(?:it|this|that)\b"
    r"|[对准确]|属实|如此|这样|可靠|核实|证实|有效"
)
TOLERANCE, CLOSE = 0.03, 0.005  # of an amount in another unit, and of what is calculated
HEAP = 3  # candidates told alike
MAX_TERMS, MAX_FACTORS = 12, 3


@dataclass(frozen=True)
class Asked:
    """What a value is, as far as asides go: its kind, whether a text tells it, its number and the unit of that, the
    question's words; of the whole answer its text, the words behind values, and the numbers that lead to this one."""

    kind: AnswerType
    tells: Callable[[str], bool]
    says: Callable[[str], bool]
    number: float | None
    unit: str
    content: frozenset[str]
    has_digit: bool
    follows: frozenset[str]
    told: str
    explained: frozenset[str]
    is_superlative: bool


def without_question(answer: str, question: str) -> str:
    """An answer without the question that it repeats, with its mark."""
    words = r"[\s*_`\"'“”‘’«»]*".join(map(re.escape, question.rstrip("?？ ").split()))
    return re.sub(
        rf"(?:^|(?<=[\n:：。.“\"]))[^\n.。:：]{{0,24}}[:：]?[\s*_\"“「『]*{words}\s*[?？][\s*_\"”」』]*[.。,，]?",
        "\n",
        answer,
    )


def cut_asides(answer: str, asked: Asked) -> str:
    """An answer without its asides."""
    pieces = _pieces(answer)
    tells = [asked.tells(plain(text)) for text, *_ in pieces]
    if True not in tells:
        return answer
    tells = tells if asked.kind in ("list", "set") else _with_heaps(pieces, tells, asked)
    first, kept = tells.index(True), list[str]()
    talk = _of_process(pieces, tells)
    for n, (text, end, is_inner) in enumerate(pieces):
        is_told = tells[n] or not text.strip() or end in ("?", "？")
        is_free = not is_told and _is_aside(text, asked, is_after=n > first, is_inner=is_inner)
        kept.append("\n" if is_free or n in talk else text + end)
    return "".join(kept)


def _with_heaps(pieces: Sequence[tuple[str, str, bool]], tells: Sequence[bool], asked: Asked) -> list[bool]:
    """Which pieces tell the value, or something else in the same shape where several do: "(31 pears) (27 figs) ..."."""
    shapes, told = list[str](), dict[str, set[str]]()
    for text, *_ in pieces:
        said = without_numbers(plain(text), asked.explained)
        words = (one[0] for one in tokens(VALUE.sub("#", said)))
        known = ("#" if one == "#" else one if one in asked.content or asked.says(one) else "?" for one in words)
        shapes.append(" ".join(word for word, _ in groupby(known)))
        told.setdefault(shapes[-1], set()).update(VALUE.findall(said) if asked.kind == "number" else [said])
    heaps = {one for one, is_told in zip(shapes, tells, strict=True) if is_told and len(told[one]) >= HEAP}
    return [is_told or shape in heaps for shape, is_told in zip(shapes, tells, strict=True)]


def _of_process(pieces: Sequence[tuple[str, str, bool]], tells: Sequence[bool]) -> set[int]:
    """The pieces of sentences that tell how the value was found, and not the value."""
    found, sentence = set[int](), list[int]()
    for n, (_, end, _) in enumerate(pieces):
        sentence.append(n)
        if end not in (",", "，", "(", "（", ")", "）") or n + 1 == len(pieces):
            parts = [one for one in sentence if not tells[one]]
            text = ", ".join(pieces[one][0] for one in parts)
            is_alone = len(parts) == len(sentence)
            if is_alone and _is_process(text, is_before=True not in tells[:n]):
                found.update(parts)
            else:
                found.update(one for one in parts if _is_process(pieces[one][0], is_before=False))
            sentence = []
    return found


def _is_process(text: str, *, is_before: bool) -> bool:
    """Whether a text tells of queries, tables and the like; before the value, of mistakes too."""
    said = plain(text)
    if not PROCESS.search(said):
        return False
    said = PROCESS.sub(" ", OF_PROCESS.sub(" ", NONE_NEEDED.sub(" ", HOW.sub("", said))))
    doubts = {*DOUBTS.findall(said)} - (MISTAKES if is_before else set())
    return not (re.search(r"[?？\d]", said) or DENIALS.search(said) or doubts or _has_names(text, ""))


def _pieces(answer: str) -> list[tuple[str, str, bool]]:
    """(text, what ends it, whether it stands in parentheses)."""
    found, after, depth = list[tuple[str, str, bool]](), 0, 0
    for end in [*PIECE_END.finditer(answer), None]:
        stop, mark = (end.start(), end[0]) if end else (len(answer), "")
        found.append((answer[after:stop], mark, depth > 0))
        depth += (mark in "(（" if mark else 0) - (mark in ")）" if mark else 0)
        after = stop + len(mark)
    return found


def _is_aside(text: str, asked: Asked, *, is_after: bool, is_inner: bool) -> bool:
    """Whether a piece of an answer, behind the value or in parentheses, may be anything but another value."""
    said = without_numbers(plain(text), asked.explained)
    said = said if asked.is_superlative else ORDINAL.sub(" ", said)
    is_told = said != plain(text) and not re.search(r"\d", said)  # a term of the value, or the value rounded
    if re.search("[?？]", said) or {*DOUBTS.findall(said)} - ROUGH or JOINS.search(said):
        return False
    if not (is_after or is_inner or is_told):
        return False
    if is_after and _is_of_another(text, said, asked):
        return True
    if DENIALS.search(said):
        return False
    if asked.kind in ("list", "set"):
        return is_inner and not asked.has_digit and re.search(r"\d", said) is not None
    if asked.kind == "date":
        return not re.search(rf"{DATE.pattern}|{TIME}|\b(?:{MONTH})\b|\d月|(?:19|20)\d\d", said)
    if asked.kind == "name":
        return _is_about(text, said, asked, is_inner=is_inner)
    return not has_rival(said, asked)


def _is_of_another(text: str, said: str, asked: Asked) -> bool:
    """Whether a piece behind the value says something that the question does not ask: its words are others."""
    names = [plain(one) for one in re.findall(r"\b[A-Z][\w'’-]*", text)]
    bare = re.sub(rf"{DATE.pattern}|{TIME}|\d", " ", said)
    words = [one for *_, one in terms(bare) if one not in names and stem(one) not in COMMON]
    if asked.kind == "name":
        is_item = said.isascii() and not LINKED.search(said)
    else:
        is_item = asked.kind in ("list", "set") and not (any(map(is_chinese_verb, words)) or VERB.search(said))
    if is_item or any(map(asked.says, [*words, *names[text[:1].isupper() :]])):
        return False
    return bool(words) and not (DENIALS.search(said) and EVALUATES.search(said))


def _is_about(text: str, said: str, asked: Asked, *, is_inner: bool) -> bool:
    """Whether a piece tells more of a name, and no other."""
    if asked.has_digit and any(re.search(r"\d", one[0]) and not NUMBER.fullmatch(one[0]) for one in tokens(said)):
        return False
    if is_inner and re.search(r"\d", said):
        return not asked.has_digit
    if COUNT.fullmatch(said) and not asked.has_digit:
        return True
    if SECOND.search(said) and asked.is_superlative:
        return True
    if re.search(r"[A-Z]", text.strip()[1:]) and any(asked.says(one) for *_, one in terms(said)):
        return False
    if re.search("[\u4e00-\u9fff]", said):
        is_clause = BEGINS_ZH.match(said) or any(map(is_chinese_verb, map("".join, pairwise(said))))
        return len(said) > 4 and bool(is_clause) and not TELLS_ZH.search(said)
    return len(said.split()) > 2 and not _has_names(text, said)


def _has_names(text: str, said: str) -> bool:
    """Whether a capitalised word stands where a name would: first, or behind no preposition."""
    text = text.strip(" *_`\"“”'")
    places = [m.start() for m in re.finditer(r"\b[A-Z][a-z]", text)]
    is_apposed = re.match(r"(?:the|an?) ", text) is not None and not VERB.search(said)
    if is_apposed:
        return False
    alone, last = list[int](), -99
    for at in places:
        is_next = last >= 0 and re.fullmatch(r"[\w’'.-]+ (?:and )?", text[last:at]) is not None
        if not is_next and not PREPOSITION.search(text[:at].lower()):
            alone.append(at)
        last = at
    return bool(alone) if said else any(alone[1:]) or (bool(alone) and alone[0] > 0)


def has_rival(said: str, asked: Asked) -> bool:
    """Whether a piece has a number that may be the answer."""
    said = LATEST.sub(" ", LABELLED.sub(" ", said))
    value = asked.number
    if value is not None:
        if len(asked.content & {one[0] for one in tokens(said)}) <= (1 if said.isascii() else 2):  # of another thing
            said = PART_OF.sub(lambda m: " " if float((m[1] or m[2]).rstrip(".")) < value else m[0], said)
        said = AMOUNT.sub(lambda m: " " if _is_same(float(m[1]), m[3], asked) else m[0], said)
    said = re.sub(rf"{DATE.pattern}|{TIME}", " ", said)
    if value is None or not FIRST_YEAR <= value < NO_YEAR:
        said = YEAR.sub(" ", said)
    if asked.unit != "percent":
        said = re.sub(r"-?\d[\d.]{0,15} percent(?: of)?", " ", said)
    return any(_is_rival(match, said, asked) for match in NUMBER.finditer(said))


def _is_rival(match: re.Match[str], said: str, asked: Asked) -> bool:
    """Whether a number has no unit, that of the value, or what the question counts behind it."""
    following = re.match(r" ?(?:more |of the |other )?([a-z]+|[\u4e00-\u9fff])", said[match.end() :])
    if not following:
        return True
    word = following[1]
    ours, theirs = UNITS.get(asked.unit), UNITS.get(word)
    if theirs and ours:
        return ours[0] == theirs[0]
    return (
        word in asked.follows
        or word in asked.content
        or word.rstrip("s") in asked.content
        or LINKS.fullmatch(word) is not None
    )


def _is_same(number: float, unit: str, asked: Asked) -> bool:
    """Whether an amount is the asked one in another unit, about."""
    if asked.unit not in UNITS or asked.number is None:
        return False
    (kind, size), (its_kind, its_size) = UNITS[asked.unit], UNITS[unit]
    wanted = asked.number * size
    return kind == its_kind and size != its_size and abs(number * its_size - wanted) <= TOLERANCE * abs(wanted)


def explained(said: str, value: float, own: set[str]) -> frozenset[str]:
    """The other numbers of a text that lead to a value: its terms, what it is a part of, and the value rounded. Those
    of the question's own may be terms."""
    every = [one.lstrip("-") for one in VALUE.findall(said) if NUMBER.fullmatch(one)]
    new = [one for one in every if one not in own]
    for some in (new, every):
        if new and CALCULATES.search(said) and len(some) <= MAX_TERMS and _makes([*map(float, some)], abs(value)):
            return frozenset(some)
    wholes = {one for found in WHOLE.findall(said) for one in found if one and float(one.rstrip(".")) > value}
    rounded = {float(f"{value:.{digits}g}") for digits in (2, 3)}
    about = {found[1] for found in ABOUT.finditer(said)}
    return frozenset(one for one in new if one in wholes or (one in about and float(one) in rounded))


def without_numbers(said: str, numbers: frozenset[str]) -> str:
    """A text with blanks for these numbers, but not in dates and times."""
    return VALUE.sub(lambda found: " " if found[0].lstrip("-") in numbers else found[0], said) if numbers else said


def _makes(terms: Sequence[float], value: float) -> bool:
    """Whether a value is the sum of terms, or the difference, product, ratio or growth of two of them."""
    sums = [sum(terms), sum({*terms})] if len({*terms}) > 1 else []
    for a, b in permutations({*terms}, 2) if len({*terms}) <= MAX_FACTORS else ():
        sums += [a - b, a * b, *([a / b, 100 * a / b, 100 * (a - b) / b] if b else [])]
    return any(abs(one - value) <= CLOSE * abs(value) for one in sums)
