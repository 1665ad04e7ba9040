"""What is sought, for what an answer tells beside it: which words and numbers could be another answer.

Guarantees: pure functions, linear in the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from sql_agent.offline_judge.lexicon import Lexicon, tokens
from sql_agent.offline_judge.slots import is_form, stem
from sql_agent.offline_judge.typed.calculation import explained, without_again
from sql_agent.offline_judge.typed.forms import WEEKDAY_ZH, forms_of
from sql_agent.offline_judge.typed.replaced import SUPERLATIVE
from sql_agent.offline_judge.typed.sentences import content_of, overwritten
from sql_agent.offline_judge.typed.truths import Truth
from sql_agent.offline_judge.typed.wordings import with_zeros
from sql_agent.offline_judge.units import UNITS, unit_of
from sql_agent.offline_judge.values import DATE, MONTH, NUMBER, TIME, plain
from sql_agent.records import AnswerType

LABELLED = re.compile(r"(?:\b(?:no|number|nr|code|id|room|route|phone)\.? ?|[a-z]-|#|编号|号)\d[\w.-]*")
LATEST = re.compile(r"(?:最近|最后|另|每|某|同)1[\u4e00-\u9fff]|\bone\b")  # no amount
PART_OF = re.compile(
    r"\b(\d[\d.]{0,15}) (?:out )?of (?:them|which|whom|these|those|whose)\b|(?:其中[^\d]{0,6}|\bother )(\d[\d.]{0,15})"
)
YEAR = re.compile(r"\b(?:in|since|until|till|from|by|of|for|during|after|before|and) (?:19|20)\d\d\b|(?:19|20)\d\d年?")
MOMENT = re.compile(
    rf"{DATE.pattern}|{TIME}|\b(?:{MONTH})\b|\d月|(?<!\d)(?:19|20)\d\d(?!\d| ?(?:k?m|kg|g|l|euros?|dollars?)\b)"
)
FIRST_YEAR, NO_YEAR, ASKS_YEAR = 1900, 2100, re.compile(r"\byear\b|[哪几]1?年")
TWO = re.compile(r"[和与跟比]|\b(?:and|between|than)\b")  # things
PERCENT = re.compile(r"-?\d[\d.]{0,15} percent(?: of)?")
COUNTS = re.compile(r"\b(?:how (?:many|much)|number|in(?= [a-z]+s\W*$))\b|(?:多少|几)个?([\u4e00-\u9fff]{1,3})")
WORD_BEHIND = re.compile(r" *(?:more |of (?:the )?|other )?([a-z]+|[\u4e00-\u9fff])")
RATE = re.compile(
    r" *(?:an?|per|each|every) (?:second|minute|hour|day|night|week|month|year)\b|[^\W\d]{0,2}每[天日周月年]"
)
LINKS = re.compile(r"is|are|was|were|or|and|to|in|for|on|at|the|an?|as|than|but|if|with|by|from|instead|[是或和到]")
PLURAL = re.compile(
    rf"(?: +(?!(?:{LINKS.pattern})\b)[a-z-]+){{0,2}}? +(?!(?:{LINKS.pattern}|has)\b)([a-z]{{3,}}(?<!s)s)\b"
)


@dataclass(frozen=True)
class Sought:
    """A value: its kind, and of a number what it is, its unit, which other numbers lead to it and which stand in its
    row; `content` has stems and characters of the question, `follows` words behind values, `shapes` of names."""

    kind: AnswerType
    question: str
    forms: Lexicon
    is_zero: bool
    number: float | None
    unit: str
    content: frozenset[str]
    counted: frozenset[str]
    shapes: frozenset[str]
    follows: frozenset[str]
    explained: frozenset[str]
    beside: frozenset[str]
    is_superlative: bool

    @property
    def is_named(self) -> bool:
        return self.kind in ("name", "list", "set")

    def is_in(self, said: str) -> bool:
        said = with_zeros(said, self.question) if self.is_zero else said
        return bool(self.forms.read(said)[0])

    def is_alike(self, word: str) -> bool:
        """Whether a word has digits as the names have: tx-4 beside tx-3, and no 88.9."""
        return _shape(word) in self.shapes

    def times_in(self, raw: str) -> int:
        return len(self.forms.read(plain(raw))[0])

    def asks_with(self, word: str) -> bool:
        """Whether the question says a word in any form, or a part of a Chinese one."""
        if not word.isascii():
            return any("".join(pair) in self.question for pair in pairwise(word))
        return any(is_form(word, other) for other in self._words)

    @cached_property
    def _words(self) -> list[str]:
        """The question's English words, each once."""
        words = dict.fromkeys(token[0] for token in tokens(self.question))
        return [word for word in words if word.isascii() and len(word) > 2]


def sought(truth: Truth, question: str, said: str) -> Sought:
    """What a truth is where `said` answers."""
    forms = Lexicon(form for value in truth.values for form in forms_of(value, truth.kind, question, said))
    number = NUMBER.match(truth.values[0]) if truth.kind == "number" else None
    marked = overwritten(said, forms.read(said)[0], "#")
    own = {token[0] for token in tokens(f"{question} {' '.join(truth.values)}")}
    return Sought(
        kind=truth.kind,
        question=question,
        forms=forms,
        is_zero=truth.values == ("0",),
        number=float(number[0]) if number else None,
        unit="percent"
        if re.search("percent|百分", question) or truth.values[0].startswith("0.")
        else unit_of(question, truth.values[0], truth.columns),
        content=_content(question),
        counted=_counted(question),
        shapes=frozenset(map(_shape, numbered(" ".join(truth.values)) if truth.is_named else ())),
        follows=frozenset(re.findall(r"# ?([a-z]+|[\u4e00-\u9fff])", marked)),
        explained=explained(WEEKDAY_ZH.sub(" ", marked), float(number[0]), own) if number else frozenset(),
        beside=frozenset(number for row in truth.rows for cell in row for number in NUMBER.findall(cell))
        | ({"2"} if TWO.search(question) else set()),
        is_superlative=SUPERLATIVE.search(question) is not None,
    )


def numbered(said: str) -> list[str]:
    """The words of a text with a digit."""
    return [token[0] for token in tokens(said) if re.search(r"\d", token[0])]


def _shape(word: str) -> str:
    return re.sub(r"[\d.]+", "9", re.sub("[a-z]+", "a", word))


def _content(said: str) -> frozenset[str]:
    return frozenset(content_of(said)) | {sign for sign in said if not sign.isascii()}


def _counted(question: str) -> frozenset[str]:
    """The words of what a question counts; all where they cannot be told apart."""
    if not (counts := COUNTS.search(question)):
        return _content("" if question.isascii() else question)
    noun = PLURAL.match(question, counts.end()) or counts
    if not noun[1]:
        return _content(question)
    return frozenset({stem(noun[1])} if noun[1].isascii() else noun[1])


def has_rival_number(said: str, value: Sought) -> bool:
    """Whether a piece of an answer has a number that may be the answer."""
    said = LATEST.sub(" ", LABELLED.sub(" ", said))
    number = value.number
    if number is not None:
        few = 1 if said.isascii() else 2
        if len(value.content & {token[0] for token in tokens(said)}) <= few:  # of another thing
            said = PART_OF.sub(lambda part: " " if float((part[1] or part[2]).rstrip(".")) < number else part[0], said)
        said = without_again(said, [number], value.unit)
    said = re.sub(rf"{DATE.pattern}|{TIME}", " ", said)
    if number is None or not FIRST_YEAR <= number < NO_YEAR:
        said = YEAR.sub(" ", said)
    said = said if value.unit == "percent" else PERCENT.sub(" ", said)
    asks_year = ASKS_YEAR.search(value.question) and number is not None and FIRST_YEAR <= number < NO_YEAR
    return any(
        _is_rival(said[amount.end() :], value)
        for amount in NUMBER.finditer(said)
        if not asks_year or FIRST_YEAR <= float(amount[0]) < NO_YEAR
    )


def _is_rival(behind: str, value: Sought) -> bool:
    """Whether a number has no unit, that of the value, or what the question counts behind it."""
    following = WORD_BEHIND.match(behind)
    return is_counted(behind, value) or (following is not None and following[1] in value.follows)


def is_counted(behind: str, value: Sought) -> bool:
    """Whether what stands behind a number is no other unit, and nothing that the question does not count."""
    following = WORD_BEHIND.match(behind)
    if not following:
        return True
    if RATE.match(behind) and not RATE.search(value.question):
        return False
    word = following[1]
    if word in UNITS and value.unit in UNITS:
        return UNITS[value.unit][0] == UNITS[word][0]
    if word in ("percent", value.unit) or LINKS.fullmatch(word):
        return True
    noun = PLURAL.match(behind)
    asked = value.counted if noun or not word.isascii() else value.content
    return bool({word, stem(noun[1] if noun else word)} & asked)
