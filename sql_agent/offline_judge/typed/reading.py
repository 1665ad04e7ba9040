"""Which values of the truth an answer tells, in which order, and whether anything in it speaks against them.

A text in which # stands for the values is called marked. Every clause is looked at: one that tells a value may hold a
few other words, any other has to be a frame. Against the values speak a doubt, a denial, another name, number or thing,
and the question's things exchanged. Guarantees: linear in the answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from sql_agent.offline_judge.doubts import SOURCE
from sql_agent.offline_judge.lexicon import Lexicon, spell, tokens
from sql_agent.offline_judge.slots import ASKED, PASSIVE, is_exchanged, is_other_kind, is_rivalled, is_turned, stem
from sql_agent.offline_judge.typed.asides import HEAP
from sql_agent.offline_judge.typed.calculation import without_numbers
from sql_agent.offline_judge.typed.doubted import Doubts
from sql_agent.offline_judge.typed.exchanged_rows import are_exchanged
from sql_agent.offline_judge.typed.forms import forms_of
from sql_agent.offline_judge.typed.names import CAPITALISED, NO_NAMES, capitalised
from sql_agent.offline_judge.typed.periods import without_period
from sql_agent.offline_judge.typed.replaced import (
    COPULA,
    MIN_NAME,
    TIMES,
    is_alike,
    lacks_subject,
    renames,
    turns_comparison,
    turns_way,
)
from sql_agent.offline_judge.typed.sentences import (
    CLAUSE_END,
    FRAME,
    GRAMMAR,
    content_of,
    is_phrase,
    lexicon_of,
    overwritten,
)
from sql_agent.offline_judge.typed.sought import MOMENT, Sought, has_rival_number, numbered
from sql_agent.offline_judge.typed.truths import MAX_ITEMS, Truth
from sql_agent.offline_judge.typed.wordings import YEAR, in_asked_form
from sql_agent.offline_judge.typed.yes_no import without_opposites
from sql_agent.offline_judge.values import DATE, NUMBER, SCALES, TIME, plain
from sql_agent.words.meanings import is_chinese_word

JOINT = r"\s*(?:and|&|plus|as well as|以及|还有|加上|[和与及跟])\s*(?:the )?"
JOINED = re.compile(rf"\|{JOINT}\?+(?!\?|\s*\|)|^[^|]*\?{JOINT}\|")  # | for values, ? for unknown words
LAST_NUMBER = re.compile(rf"#(?:{JOINT}|[\s,;:、]*)(\d[\d.]*)$")
SIGN = re.compile("[?❌❎✖✗✘⛔🚫👎]|(?:[≠¬]|!=) ?#")  # that asks, judges a truth or bounds a number
NUMBER_SIGN = re.compile(rf"{SIGN.pattern}|[<>≤≥±√]=? ?#")
MONEY = re.compile("[$€£]")
SINCE = re.compile(r"\b(?:in|since|from) (?:19|20)\d\d\b|(?:19|20)\d\d年")
ONLY = re.compile(r"\b(?:only|just|sole(?:ly)?|that s (?:it|all))\b ?|(?:(?<!\d)只|仅)有?|唯1")  # of a part of a list
PLACE_ZH = re.compile(r"第\d{1,2}[名位]?")  # of a list
PLACES = re.compile(r"\b(?:second|third|fourth|fifth)\b")
ASKS_WHO_DID = re.compile(r"(?:who|which [a-z]+) ")
IS_MOMENT = re.compile(rf"{MOMENT.pattern}|第\d|\d(?:st|nd|rd|th)\b|\d$")
OPENS_ZH = re.compile(r"[这该本其它他她每各均都居占合共](?![外他它])")  # a sentence about what is told, and no item
LONG_ITEM_ZH = 8  # characters; what is longer is a sentence
CODE = re.compile(r"\d[a-z]|[a-z]-?\d")
COUNTED = re.compile(
    r"\b(?:in|are|exactly|only|these|following) (\d+) ([a-z]+)|(?:[总一]?共有?|这)(\d+)[个家座种部位名项]"
)
IS_ITEM = re.compile(r"\b(?:are|includes?) (?:the |an? )?(?![a-z]+(?:ed|ly)$)[a-z]+$")  # of a list
KIND_OF_NAME = re.compile(r"\bthe ([a-z]+) (?=[\"'“‘«]?[A-Z])")  # the planet Mars


@dataclass(frozen=True)
class Clause:
    """`values` (start, end, spelling) are those it tells, `unknown` and `courtesy` what stands around them. `leads`: it
    ends in a colon or a line's end, and the next one tells a value; `follows`: one before it did."""

    text: str
    marked: str
    around: str
    values: list[tuple[int, int, str]]
    courtesy: list[tuple[int, int, str]]
    unknown: list[tuple[int, int]]
    leads: bool
    follows: bool


class Reading:
    """What an answer tells. `answer` is raw and without asides, `whole` with them, `value` what it is about."""

    def __init__(self, truth: Truth, raw_question: str, answer: str, whole: str, value: Sought) -> None:
        self._truth, self._question, self._value = truth, plain(raw_question), value
        said = in_asked_form(answer, truth, self._question)
        self._value_of = {
            spell(form): value for value in truth.values for form in forms_of(value, truth.kind, self._question, said)
        }
        self._values = Lexicon(self._value_of)
        self.said = self._without_own(said, value)
        self._all_said = f"{self.said} {plain(whole)}"
        beside = [value for row in truth.rows for value in row if value not in truth.values]
        self._known = lexicon_of("\n".join([self._question, *truth.columns, *beside]))
        self._content = content_of(self._question)
        self._read_numbers(beside)
        self._read_names(raw_question, answer)
        self._doubts = Doubts(truth, self._question)
        self._lacks_subject = lacks_subject(self._question, self.said)
        columns = " ".join(truth.columns).split()
        self._columns = Lexicon(word for word in columns if stem(word) not in self._content)
        marked = self.marked(self.said)
        clauses = self._clauses(marked)
        self.order = [self._value_of[spelling] for clause in clauses for *_, spelling in clause.values]
        self.spare_numbers = self._spare_numbers(marked)
        money = [" ".join(["", *MONEY.findall(text)]) for text in (raw_question, answer)]  # no part of plain numbers
        untold = [] if truth.is_named else [one for one in clauses if not one.values and self._other_numbers(one)]
        self.is_clean = not (
            self._is_against(marked)
            or (truth.is_named and sum(map(_cites_unknown, clauses)) > 1)
            or len(untold) >= HEAP
            or is_other_kind(" ".join([self._question, *truth.columns, *truth.values]) + money[0], marked + money[1])
            or not all(map(self._is_clean, clauses))
        )
        self.listed = self.order[: self._n_listed(clauses)]
        self.has_exchanged_rows = are_exchanged(truth, self._question, in_asked_form(whole, truth, self._question))

    def marked(self, said: str) -> str:
        return overwritten(said, self._values.read(said)[0], "#")

    def has_other_amount(self, answer: str) -> bool:
        """Whether a raw answer tells another amount beside a value than its row has there."""
        if not self._truth.is_named or not self._beside:
            return False
        marked = self.marked(in_asked_form(answer, self._truth, self._question))
        own = {number.lstrip("-") for token in self._numbers for number in NUMBER.findall(token)}
        own |= {number.lstrip("-") for value in self._truth.values for number in NUMBER.findall(value)}
        known = {form for number in own for form in forms_of(number, "number", self._question, "")}
        known |= {f"{float(number) * scale:.15g}" for number in own if "." in number for scale in SCALES.values()}
        amounts = {one.lstrip("-") for one in NUMBER.findall(re.sub(rf"{DATE.pattern}|{TIME}", " ", marked))}
        return not all(_rounds(amount, amounts & known) for amount in amounts - known)

    def _without_own(self, said: str, value: Sought) -> str:
        """What is said, without the question's period, the years of a name and the terms of a number."""
        said = without_period(said, self._question)
        is_plain_name = self._truth.kind == "name" and not re.search(r"\d", self._truth.values[0])
        if is_plain_name and not YEAR.search(self._question):
            said = SINCE.sub(" ", said)
        said = without_numbers(said, value.explained)
        shown = self.marked(said)
        if self._truth.is_ordered:  # the second of a list is none that is not the first
            shown = PLACES.sub(lambda place: " " * len(place[0]), shown)
            said = PLACE_ZH.sub(lambda place: " " * len(place[0]), said)
        return without_opposites(said, self._question, shown)

    def _read_numbers(self, beside: list[str]) -> None:
        """Which numbers may stand beside the values: of the question, of their rows, and the places of a list."""
        truth = self._truth
        is_of_words = truth.is_named and not any(map(NUMBER.fullmatch, truth.values))
        of_rows = {token[0] for value in beside for token in tokens(value)}
        self._of_question = {token[0] for token in tokens(self._question)}
        self._asked, self._told = [*_places_of_numbers(self._question)], {*spell(self._all_said).split()}
        self._beside = {token for token in of_rows if NUMBER.fullmatch(token)}
        self._numbered = {token for token in of_rows if re.search(r"\d", token)}
        self._numbers = self._of_question | of_rows
        self._numbers |= {str(place) for place in range(1 if is_of_words else truth.n_values, truth.n_values + 1)}
        self._numbers |= {"1"} if self._value.is_superlative else set()  # the first one
        columns = zip(*truth.rows, strict=False) if truth.is_named and len(truth.rows) > 1 else ()
        sums = [sum(map(float, column)) for column in columns if all(map(NUMBER.fullmatch, column))]
        is_of_numbered = is_of_words and len(truth.columns) < 2 and self._value.is_alike("1")  # 1月, 2月
        self._may_count = truth.is_named and not is_of_numbered
        n = str(truth.n_values) if truth.is_named else "x"
        self._count = re.compile(rf"(?<=[共有这们#]){n}[^\W\d]?(?![\d.])")
        totals = "|".join(re.escape(f"{one:.15g}") for one in (len(truth.rows), *sums))
        self._total = re.compile(rf"(?<![\d.-])(?:{n}|{totals})[^\W\d]?(?![\d.-])")

    def _read_names(self, raw_question: str, answer: str) -> None:
        self._capitals = capitalised(answer)
        self._names = (self._capitals | capitalised(raw_question)) - NO_NAMES
        self._spare_words = frozenset(KIND_OF_NAME.findall(raw_question))
        first_words = {spell(plain(word)).strip() for word in CAPITALISED.findall(answer)}
        self._are_capitalised = all(
            value[0].isdigit() or {*spell(value).split()[:1]} <= first_words for value in self._truth.values
        )
        self._questions = [self._question]
        is_active = ASKS_WHO_DID.match(self._question) and not PASSIVE.search(self._question)
        if is_active and self._truth.kind == "name":
            self._questions.append(ASKED.sub("#", self._question))

    def _spare_numbers(self, marked: str) -> set[str]:
        """The question's numbers that the answer tells of something else than the question does ("above 30"), more
        often than rows begin with them."""
        asked, told = ([*pairwise(["", *spell(text).split()])] for text in (self._question, marked))
        same = {(before, number) for before, number in asked if before not in GRAMMAR}
        spare = Counter(
            number
            for before, number in told
            if NUMBER.fullmatch(number) and number in self._of_question and (before, number) not in same
        )
        return {*(spare - Counter({row[0] for row in self._truth.rows}))}

    def _is_against(self, marked: str) -> bool:
        """Whether the answer as a whole asks, judges its values, or tells another one or the question turned round."""
        truth, question = self._truth, self._question
        sign = NUMBER_SIGN if truth.kind == "number" else SIGN
        return bool(
            sign.search(marked)
            or self.spare_numbers & {*LAST_NUMBER.findall(marked.rstrip(".。、 "))}
            or self._doubts.deny_twice(self.said)
            or (truth.n_values == 1 and is_rivalled(self._value_of, question, self.said))
            or turns_way(question, self.said)
        )

    def _n_listed(self, clauses: list[Clause]) -> int:
        """How many values are told before the answer says that these are all: "only A and B"."""
        n = 0
        for clause in clauses:
            n += len(clause.values)
            only = ONLY.search(clause.text)
            numbers = {start for start, _, spelling in clause.values if NUMBER.fullmatch(spelling.strip())}
            if clause.values and only and only.end() not in numbers:  # "just 5 of them" leaves nothing out
                return min(n, MAX_ITEMS)
        return MAX_ITEMS

    def _clauses(self, marked: str) -> list[Clause]:
        """No mark within a value ends a clause."""
        ends = [*CLAUSE_END.finditer(marked)]
        places = zip([0, *(end.end() for end in ends)], [*(end.start() for end in ends), len(marked)], strict=True)
        pieces = [
            (self.said[start:end].strip(), marked[end : end + 1], "#" in marked[start:end]) for start, end in places
        ]
        pieces = [piece for piece in pieces if piece[0]]
        clauses, n_read = list[Clause](), 0
        for text, *_ in pieces:
            clauses.append(self._clause(text, follows=n_read > 0))
            n_read += len(clauses[-1].values)
        first = next((n for n, (*_, tells) in enumerate(pieces) if tells), len(pieces))
        leads = False  # what comes next: a heading leads to a label, a label to what is told or known
        for n in reversed(range(len(pieces))):
            is_label = pieces[n][1] == ":" or (pieces[n][1] == "\n" and n <= first)
            is_lead = is_label and leads
            is_known = not clauses[n].unknown and (leads or (n > 0 and pieces[n - 1][1] == ":"))
            leads = is_lead or pieces[n][2] or is_known
            clauses[n] = replace(clauses[n], leads=is_lead)
        return clauses

    def _clause(self, text: str, *, follows: bool) -> Clause:
        values, _ = self._values.read(text)
        marked = overwritten(text, values, "#")
        count = self._count if values or not self._may_count else self._total
        around = count.sub(lambda count: " " * len(count[0]), marked).replace("#", " ")
        courtesy, unknown = self._known.read(around)
        unknown = [
            (start, end)
            for start, end in unknown
            if not (around[start:end].isascii() and content_of(around[start:end]) <= self._content)
        ]
        return Clause(text, marked, around, values, courtesy, unknown, leads=False, follows=follows)

    def _is_clean(self, clause: Clause) -> bool:
        marked = overwritten(clause.marked, [span for span in FRAME.read(clause.around)[0] if is_phrase(span[2])])
        return not (
            self._doubts.are_in(marked)
            or renames(self._question, clause.marked)
            or self._has_other_number(clause)
            or (clause.values and self._lacks_subject and self._has_other_subject(clause))
            or (self._truth.is_named and self._has_alike(clause))
            or (clause.values and self._is_against_value(clause))
            or self._is_further_item(clause)
        )

    def _has_other_subject(self, clause: Clause) -> bool:
        """Whether a Chinese name that no dictionary has begins a clause, and not only the value follows."""
        start, end = clause.unknown[0] if clause.unknown else (0, 0)
        name, before, behind = (clause.around[n:m] for n, m in ((start, end), (0, start), (end, clause.values[0][0])))
        is_name = len(name) >= MIN_NAME and re.fullmatch("[\u4e00-\u9fff]+", name) and not is_chinese_word(name)
        begins = not before.strip() or before.rstrip()[-1] in TIMES
        return bool(is_name) and begins and bool(behind.strip())

    def _has_alike(self, clause: Clause) -> bool:
        names = [clause.around[start:end] for start, end in clause.unknown]
        return any(is_alike(name, value) for name in names for value in self._truth.values)

    def _other_numbers(self, clause: Clause) -> list[str]:
        told = [one for one in numbered(clause.around) if not one[0].isalpha() or self._value.is_alike(one)]
        return [one for one in told if one not in self._numbers]

    def _has_other_number(self, clause: Clause) -> bool:
        """Whether a clause has a number that may be the answer, or one in the place of a number of the question."""
        others, kind = self._other_numbers(clause), self._truth.kind
        if self._is_renumbered(clause) or (kind in ("list", "set") and self._miscounts(clause)):
            return True
        if kind == "number" and others:
            is_period = YEAR.search(self._question) and DATE.search(clause.around)
            rest = without_numbers(clause.around, frozenset(self._numbers | self._value.beside))
            return bool(is_period) or has_rival_number(rest, self._value)
        is_count = all(map(NUMBER.fullmatch, others)) and bool(clause.values) and not IS_MOMENT.search(clause.around)
        return any(map(self._value.is_alike, others)) or (kind == "date" and bool(others) and not is_count)

    def _miscounts(self, clause: Clause) -> bool:
        """Whether a clause says that what is asked for are so many, and neither values nor rows are."""
        known = {str(self._truth.n_values), str(len(self._truth.rows)), *self._of_question, *self._numbered}
        return any(
            (number or number_zh) not in known and (not noun or stem(noun) in self._content)
            for number, noun, number_zh in COUNTED.findall(clause.around)
        )

    def _is_renumbered(self, clause: Clause) -> bool:
        """Whether a number stands where the question has another one: "the 2020 final" for "the 2021 final"."""
        told = {*spell(clause.text).split()} if clause.values else self._told
        others = [place for number, place in _places_of_numbers(clause.around) if number not in self._numbers]
        asked = {place for number, place in self._asked if number not in told}
        codes = {shape for number, (_, shape) in self._asked if number not in told and re.search("[a-z]", shape)}
        shapes = {shape for number, (_, shape) in self._asked if number not in self._told and len(shape) > 2} | codes
        return any(place in asked or place[1] in shapes for place in others)

    def _is_against_value(self, clause: Clause) -> bool:
        """Whether a clause tells its values of another thing, or one more beside them."""
        said = overwritten(clause.marked, self._columns.read(clause.marked)[0])  # a column's name is no other thing
        names = self._names | {"#"}
        tells_row = min(len(self._truth.rows), len(self._truth.columns), len(clause.values)) > 1  # with any verb
        return bool(
            self._doubts.affirm(clause.text)
            or self._joins_unknown(clause)
            or turns_comparison(self._question, clause.marked)
            or (not tells_row and is_exchanged(self._question, said, self._all_said, self._spare_words))
            or (self._names and any(is_turned(question, clause.marked, names) for question in self._questions))
        )

    def _joins_unknown(self, clause: Clause) -> bool:
        """ "A and B" where only A is true."""
        signs = overwritten(overwritten(clause.around, clause.values, "|"), clause.unknown, "?")
        return bool(JOINED.search(signs)) and (self._truth.is_named or clause.around.isascii())

    def _is_further_item(self, clause: Clause) -> bool:
        """Whether a clause without a value may name another one: it has unknown words, leads to none, tells no number
        of the row, and is no source."""
        new = [token[0] for start, end in clause.unknown for token in tokens(clause.around[start:end])]
        is_free = all(NUMBER.fullmatch(one) and not self._value.is_alike(one) for one in new)
        if not self._truth.is_named or clause.values or not new or is_free or clause.leads:
            return False
        has_number = any(token[0] in self._numbered for token in tokens(clause.around))
        return not has_number and not self._is_source(clause)

    def _is_source(self, clause: Clause) -> bool:
        """Whether a clause that tells no value says whence one is known, or what it is about: no further item."""
        if clause.text.isascii() and self._are_capitalised:
            unknown = [word for start, end in clause.unknown for word in clause.around[start:end].split()]
            return not any(word in self._capitals or CODE.search(word) for word in unknown)
        if SOURCE.search(clause.text):
            return True
        is_topic = not any(COPULA.search(clause.around[:start]) for start, _ in clause.unknown)
        if clause.follows:
            return is_topic and OPENS_ZH.match(clause.text) is not None
        is_long = not clause.text.isascii() and len(clause.text) > LONG_ITEM_ZH
        is_topic = is_topic and not IS_ITEM.search(clause.text)
        return is_topic and (is_long or bool(_topics(self._question) & _topics(clause.text)))


def _rounds(amount: str, numbers: Iterable[str]) -> bool:
    """Whether an amount is one of these numbers, told with it, with fewer digits: 1904 (some 1.9 thousand)."""
    digits = len(amount.replace(".", "").strip("0"))
    return any(float(f"{float(number):.{digits}g}") == float(amount) for number in numbers if digits and float(number))


def _places_of_numbers(text: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """The numbers of a text, each with the word before it or behind it, and its shape."""
    words = ["", *spell(text).split(), ""]
    for before, number, behind in zip(words, words[1:], words[2:], strict=False):
        if re.search(r"\d", number):
            shape = re.sub(r"\d", "9", number)
            yield from ((number, (beside, shape)) for beside in (f"{before} ", f" {behind}") if beside.strip())


def _cites_unknown(clause: Clause) -> bool:
    """Whether a clause says whence something is known, and tells a value or what nobody knows."""
    return bool(clause.unknown or clause.values) and SOURCE.search(clause.text) is not None


def _topics(text: str) -> set[str]:
    """The words that an English text speaks of; of a Chinese one its characters two by two."""
    pairs = map("".join, pairwise(text))
    return content_of(text) if text.isascii() else {pair for pair in pairs if not pair.isascii()}
