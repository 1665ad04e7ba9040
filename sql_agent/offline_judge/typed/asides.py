"""What is told beside a value: how it was found, how it was calculated, and more about the same thing.

None of it is checked, and none of it earns: an aside is cut where it can be no other answer. It has no doubt, no denial
and no question in it, and nothing of the value's own form: beside a number no other of its unit or of what is counted,
beside a date no date, beside a name no other name but behind a preposition. Guarantees: pure functions, linear in the
text. Not covered: an aside in the clause that tells the value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from sql_agent.offline_judge.doubts import DENIALS, DOUBTS
from sql_agent.offline_judge.lexicon import tokens
from sql_agent.offline_judge.slots import COMMON, stem, terms
from sql_agent.offline_judge.typed.calculation import VALUE, without_numbers
from sql_agent.offline_judge.typed.doubted import denials, new_doubts
from sql_agent.offline_judge.typed.sentences import VERB, lexicon_of, overwritten
from sql_agent.offline_judge.typed.sought import MOMENT, Sought, has_rival_number, numbered
from sql_agent.offline_judge.values import DATE, NUMBER, TIME, plain
from sql_agent.words.meanings import is_chinese_verb

PIECE_END = re.compile(
    r"(?<=[^\W\d])(?<!\b[A-Z])(?<!\b(?:Mr|Ms|Dr|St|No|no))\.(?=\s|$)|(?<=[\d*)`\"”])\.(?=\s+[^\W\d]|\s*$)"
    r"|[;!?。；！？，：\n]|[,:](?=\s)(?!\s*\d{4}\b)|\s[-–—]+\s|——|[()（）]"
)
PROCESS = re.compile(
    r"\b(?:quer(?:y|ies)|sql|tables?|columns?|database|data(?:set)?|records?|rows?|results?|schema|joins?|lookups?"
    r"|assumptions?|attempts?|tr(?:y|ies)|steps?|statements?|source)\b"
    r"|\b(?:group(?:ed|ing)|sort(?:ed|ing)|filter(?:ed|ing)|order(?:ed|ing) by|descending|ascending|divid(?:ed|ing)"
    r"|multipl(?:ied|ying))\b"
    r"|[升降]序|计[算数]|统计|求和|相[加减]|通过|排序|分组|汇总|筛选|[a-z_]表|查[询了看得到遍一1]|经查|[我再]查|列名|[数依]据|假设|结果|语句|来源|记[录载]"
)
DID = re.compile(r"^\W*i (?:[a-z]+ly )?(?:just )?(?:[a-z]+ed|took|kept|ran|made|went)\b|^我[把将按对]")  # what was done
OF_PROCESS = re.compile(
    r"\b\d+ (?:more |sql |separate |simple )?(?:quer(?:y|ies)|tables?|columns?|records?|rows?|joins?|attempts?|times?"
    r"|tr(?:y|ies)|steps?|statements?|lookups?)\b|第?\d+[次遍条张个](?:sql|语句|查询|表|列|数据库|步)?"
    r"|\b(?:multiplied by|times) 100\b|乘以?100"
)
ROUGH = {"about", "around", "approximately", "roughly", "over", "under", "nearly", "almost", "more than", "less than"}
ROUGH |= {"after", "before", "between", "above", "below", "约", "大约", "左右", "超过", "近", "接近", "but"}
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
BEGINS_ZH = re.compile(r"(?:为了?|因为?|由于|其中|比|从|共|已|在|位于|排名?第)")
SECOND = re.compile(r"\b(?:second|third|runner-up|followed|trails?)\b|紧随|第[23]名|其次|仅次")
ORDINAL = re.compile(r"\b(?:second|third|fourth)[- ](?:\w+est|most)\b|第\d+")
LINKED = re.compile(rf"{VERB.pattern}|\b(?:in|at|on|from|of|with|for|by|since|until|under|than|to)\b")
COUNT = re.compile(r"(?:with |[共约有近] ?|接近)?\d[\d.]{0,15} ?(?:[a-z]+|[^\W\d]{1,3})")
MISTAKES = {"but", "错", "修正", "更正", "wrong", "mistake", "error"}
EVALUATES = re.compile(
    r"\b(?:right|correct|true|accurate|certain|sure|confirmed|verified|valid|known|recorded|available|listed)\b"
    r"|\b(?:it|this|that)\b"
    r"|[对准确]|属实|如此|这样|可靠|核实|证实|有效"
)
OPENING, CLOSING = ("(", "（"), (")", "）")
WITHIN_SENTENCE = (",", "，", *OPENING, *CLOSING)
LAYOUT = " *_`\"“”'"
WHEN = re.compile(rf"(?:on |at |from |时间是?为?|于|从)?(?:{DATE.pattern}|{TIME})(?: ?(?:to|[-到至]) ?(?:{TIME}))?")
HEAP = 3  # candidates told alike
MIN_NEW = 2  # words that make a sentence one of other things
RETRACTS = re.compile(r"^\W*(?:no\b|不[、,;])|\btake (?:it|that|this) back|不好意思")
MAX_NAME_ZH = 4  # characters


class Piece(NamedTuple):
    """A piece of a raw answer, the mark that ends it, and whether it stands in parentheses."""

    text: str
    end: str
    is_inner: bool


def cut_asides(raw: str, value: Sought) -> str:
    """A raw answer without its asides."""
    pieces = _pieces(raw)
    tells = [value.is_in(plain(piece.text)) for piece in pieces]
    if True not in tells:
        return raw
    if value.times_in(raw) > sum(value.times_in(one.text) for one in pieces):  # one has parentheses of its own
        pieces = [piece._replace(is_inner=False) for piece in pieces]
    if value.kind not in ("list", "set"):
        tells = _with_heaps(pieces, tells, value)
    first, of_process = tells.index(True), _of_process(pieces, tells, value)
    kept = list[str]()
    for n, (piece, is_told) in enumerate(zip(pieces, tells, strict=True)):
        may_go = not is_told and piece.text.strip() and piece.end not in ("?", "？")
        is_lead = n < first and piece.end in WITHIN_SENTENCE and _is_bare(pieces[n + 1 : n + 2], value)
        is_cut = n in of_process or (may_go and not is_lead and _is_aside(piece, value, is_after=n > first))
        kept.append("\n" if is_cut else (piece.text.lstrip(" ") if kept[-1:] == ["\n"] else piece.text) + piece.end)
    return "".join(kept)


def without_process(raw: str, value: Sought) -> str:
    """A raw answer without what tells how the value was found."""
    pieces = _pieces(raw)
    tells = [value.is_in(plain(piece.text)) for piece in pieces]
    of_process = _of_process(pieces, tells, value) if True in tells else set[int]()
    return "".join("\n" if n in of_process else piece.text + piece.end for n, piece in enumerate(pieces))


def _pieces(raw: str) -> list[Piece]:
    pieces, start, depth = list[Piece](), 0, 0
    for end in [*PIECE_END.finditer(raw), None]:
        stop, mark = (end.start(), end[0]) if end else (len(raw), "")
        pieces.append(Piece(raw[start:stop], mark, depth > 0))
        depth += (mark in OPENING) - (mark in CLOSING)
        start = stop + len(mark)
    return pieces


def _with_heaps(pieces: Sequence[Piece], tells: Sequence[bool], value: Sought) -> list[bool]:
    """Which pieces tell the value, or something else in the same shape where several do: "(31 pears) (27 figs) ..."."""
    shapes, told = list[str](), dict[str, set[str]]()
    for piece in pieces:
        said = without_numbers(plain(piece.text), value.explained)
        shapes.append(_shape(said, value))
        told.setdefault(shapes[-1], set()).update(VALUE.findall(said) if value.kind == "number" else [said])
    heaps = {shape for shape, is_told in zip(shapes, tells, strict=True) if is_told and len(told[shape]) >= HEAP}
    return [is_told or shape in heaps for shape, is_told in zip(shapes, tells, strict=True)]


def _shape(said: str, value: Sought) -> str:
    """A text with # for values and ? for words that the question has not."""
    words = (token[0] for token in tokens(VALUE.sub("#", said)))
    known = (word if word == "#" or word in value.content or value.asks_with(word) else "?" for word in words)
    return " ".join(word for word, _ in groupby(known))


def _of_process(pieces: Sequence[Piece], tells: Sequence[bool], value: Sought) -> set[int]:
    """The places of pieces that tell how the value was found, and not the value; sentence by sentence. Behind a
    sentence that tells the value and nothing else, also those of sentences that speak of other things."""
    places, sentence, first, is_clear = set[int](), list[int](), tells.index(True), False
    for n, piece in enumerate(pieces):
        sentence.append(n)
        if piece.end in WITHIN_SENTENCE and n + 1 < len(pieces):
            continue
        untold = [place for place in sentence if not tells[place]]
        text = ", ".join(pieces[place].text for place in untold)
        is_told = len(untold) < len(sentence)
        is_free = _is_process(text, value.question, is_before=n <= first) or (
            is_clear and is_of_other_things(text, value)
        )
        if is_free and not is_told:
            places.update(untold)
        else:
            places.update(place for place in untold if _is_process(pieces[place].text, value.question, is_before=False))
        is_clear = is_clear or (is_told and _is_clear(", ".join(pieces[place].text for place in sentence), value))
        sentence = []
    return places


def _is_clear(raw: str, value: Sought) -> bool:
    """Whether a sentence has the value, words of the question and of any sentence, and nothing else."""
    said = plain(raw)
    around = overwritten(said, value.forms.read(said)[0])
    unknown = " ".join(around[start:end] for start, end in lexicon_of(value.question).read(around)[1])
    return all(map(value.asks_with, (token[0] for token in tokens(unknown)))) and not DOUBTS.search(around)


def is_of_other_things(raw: str, value: Sought) -> bool:
    """Whether a sentence takes nothing back and has new words enough; beside names also a verb and no name."""
    said = plain(raw)
    if new_doubts(said, value.question) - ROUGH or JOINS.search(said) or RETRACTS.search(said):
        return False
    if value.is_named and (not said.isascii() or not VERB.search(said) or _has_names(raw, is_sentence=True)):
        return False
    new = {stem(word) for *_, word in terms(said) if stem(word) not in COMMON and not value.asks_with(word)}
    return len(new) >= MIN_NEW and not (DENIALS.search(said) and EVALUATES.search(said))


def _is_process(raw: str, question: str, *, is_before: bool) -> bool:
    """Whether a text tells of queries, tables and the like; before the value, of mistakes too."""
    said = plain(raw)
    if not PROCESS.search(said) and not DID.search(said):
        return False
    years = "|".join(re.findall(r"\b\d{4}\b", question)) or "$^"
    said = re.sub(rf"\b(?:{years})-\d\d-\d\d\b|\bq\d\b", " ", said)
    said = without_numbers(said, frozenset(NUMBER.findall(question)))
    said = PROCESS.sub(" ", OF_PROCESS.sub(" ", said))
    doubts = new_doubts(said, question) - (MISTAKES if is_before else set())
    denied = DENIALS.search(said) and not DENIALS.search(question)
    raw = re.sub(r"\b[A-Z]\w*", lambda word: word[0].lower() if word[0].lower() in question else word[0], raw)
    return not (re.search(r"[?？\d]", said) or denied or doubts or _has_names(raw, is_sentence=True))


def _is_bare(pieces: Sequence[Piece], value: Sought) -> bool:
    """Whether a piece is the value and nothing else."""
    return bool(pieces) and not value.forms.read(plain(pieces[0].text))[1]


def _is_aside(piece: Piece, value: Sought, *, is_after: bool) -> bool:
    """Whether a piece is no other value; before a name nothing is one."""
    told = plain(piece.text)
    said = without_numbers(told, value.explained)
    said = said if value.is_superlative else ORDINAL.sub(" ", said)
    if new_doubts(said, value.question) - ROUGH or JOINS.search(said):
        return False
    if piece.end in ("!", "！") and not (
        re.search(r"\d", said) or denials(said) or _has_names(piece.text, is_sentence=True)
    ):
        return True
    if not is_after and (value.kind == "name" or (value.kind == "number" and MOMENT.search(said))):
        return False
    if _is_of_another(piece.text, said, value):
        return True
    if denials(said):
        return False
    if piece.is_inner and is_after and value.is_named:
        return not any(map(value.is_alike, numbered(said)))
    if value.kind in ("list", "set"):
        return bool(COUNT.fullmatch(said.strip())) and not any(map(value.is_alike, numbered(said)))
    if value.kind == "date":
        return not MOMENT.search(said)
    if value.kind == "name":
        return _is_about_name(piece, said, told, value)
    return not has_rival_number(said, value)


def _is_of_another(raw: str, said: str, value: Sought) -> bool:
    """Whether a piece says something that the question does not ask: its words are others."""
    names = [plain(name) for name in re.findall(r"\b[A-Z][\w'’-]*", raw)]
    names = [name for name in names if stem(name) not in COMMON]
    bare = re.sub(rf"{DATE.pattern}|{TIME}|\d", " ", said)
    words = [word for *_, word in terms(bare) if word not in names and stem(word) not in COMMON]
    if value.kind == "name":
        is_item = said.isascii() and not LINKED.search(said)
    else:
        is_item = value.kind in ("list", "set") and not (any(map(is_chinese_verb, words)) or VERB.search(said))
    if is_item or any(map(value.asks_with, [*words, *names])):
        return False
    return bool(words) and not (DENIALS.search(said) and EVALUATES.search(said))


def _is_about_name(piece: Piece, said: str, told: str, value: Sought) -> bool:
    """Whether a piece tells more of a name, and no other."""
    alike = [*filter(value.is_alike, numbered(said))]
    if not all(map(NUMBER.fullmatch, alike)):
        return False
    if not alike and (COUNT.fullmatch(said) or WHEN.fullmatch(told)):
        return True
    if SECOND.search(said) and value.is_superlative:
        return True
    if re.search(r"[A-Z]", piece.text.strip()[1:]) and any(value.asks_with(word) for *_, word in terms(said)):
        return False
    if re.search("[\u4e00-\u9fff]", said):
        is_clause = BEGINS_ZH.match(said) or any(map(is_chinese_verb, map("".join, pairwise(said))))
        return len(said) > MAX_NAME_ZH and bool(is_clause)
    return len(said.split()) > 2 and not _has_names(piece.text, is_sentence=False)


def _has_names(raw: str, *, is_sentence: bool) -> bool:
    """Whether a capitalised word stands where a name would: behind no preposition, and in a sentence not first."""
    text = raw.strip(LAYOUT)
    names, last = list[int](), None
    for capital in re.finditer(r"\b[A-Z][a-z]", text):
        at = capital.start()
        goes_on = last is not None and re.fullmatch(r"[\w’'.-]+ (?:and )?", text[last:at])
        if not goes_on and not PREPOSITION.search(text[:at].lower()):
            names.append(at)
        last = at
    return bool(names) if not is_sentence else any(names)
