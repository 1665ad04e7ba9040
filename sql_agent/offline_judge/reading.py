"""Reads an answer fact by fact: what is quoted, of whom it is told, and what that earns.

Guarantees: deterministic; text that states nothing asked, quoted or in part, never raises the value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from sql_agent.offline_judge import verdicts
from sql_agent.offline_judge.around import (
    BEGINS,
    MAX_NAME_CHARS,
    MIN_NAME_CHARS,
    PIECE,
    SENTENCE_END,
    SENTENCE_ENDS,
    Around,
    names_first,
)
from sql_agent.offline_judge.clauses import CLAUSE_END
from sql_agent.offline_judge.doubts import is_frame
from sql_agent.offline_judge.exam import Exam
from sql_agent.offline_judge.halves import Halves
from sql_agent.offline_judge.lexicon import DENYING, pairs_of, spell
from sql_agent.offline_judge.misquotes import is_misquoted
from sql_agent.offline_judge.normal import normalise
from sql_agent.offline_judge.sections import JOINT, Fact
from sql_agent.offline_judge.slots import LIGHT, stem
from sql_agent.offline_judge.tables import Told, by_column, is_torn

CAP, SAME_WORDS = 0.25, 0.1  # an answer that says anything else earns less than CAP; without a quote at most the other
DENIED = 0.05  # what is left of that where it quotes facts and a sign of denial stands among the foreign text
UNDER = re.compile(r"([^:|;,、。\n]+)(?::\s*|\n| ?\| ?)$")  # a label before a text
COUNTED = re.compile(r"(?<![\w.#-])(?!1\D)\d[\d.-]*[\u4e00-\u9fff]")  # a number and its unit; 1 is any word's (一般)
EVERY = re.compile(r"[都均皆]|\b(?:both|all|each|every)\b")  # of several things
FIELD = re.compile(r"1?(?:字段|栏|列)| (?:column|field)\b")  # behind a column's name
IN_TURN = re.compile(r"分别|依次|\brespectively\b|\bin (?:that|this) order\b")
FREE_MENTIONS = 2  # a summary may repeat what was said
ALONE_MENTIONS = 4  # and a thing's name, where that is all that is asked, stands in headings too
ALLOWS = "not allowed permitted possible recommended required needed necessary suitable can do don t"
VERDICT_WORDS = LIGHT | {*map(stem, ALLOWS.split())} | {*"不允许可以适合推荐建议需要必属于"}
IN_ORDER, OUT_OF_ORDER = 0.92, 0.5  # credit of facts of several things where none is named


@dataclass(frozen=True)
class ReferenceVerdict:
    """`coverage` is the share of the facts that is quoted; what was missing, and what else was said. `open` is the
    share that what else was said may tell in other words: 0 where it is seen to lie, or adds to facts all quoted."""

    value: float
    coverage: float
    missing: list[str]
    foreign: list[str]
    open: float = 0.0

    @property
    def explanation(self) -> str:
        """One line for people."""
        missing, foreign = "；".join(self.missing[:5]), "；".join(self.foreign[:5])
        told = f"coverage {self.coverage:.2f}, missing: {missing or '-'}, neither fact nor free: {foreign or '-'}"
        return f"{told}; value {self.value:.2f}{self._why}"

    @property
    def _why(self) -> str:
        """Where a value comes from that the coverage alone does not give."""
        if not self.foreign:
            return "" if self.value >= _f1(self.coverage) else " for facts in another order than asked for"
        if not self.coverage:
            return f" for words that the facts have too (at most {SAME_WORDS})"
        return f" because of what else was said (below {CAP})"


@dataclass
class _Name:
    """A name that was told: the sections that it leaves, its place, and where what was told of it ends."""

    sections: frozenset[int]
    at: int
    told_until: int | None = None


class Reading:
    """Reads an answer word by word and keeps the books."""

    def __init__(self, exam: Exam, answer: str) -> None:
        self._exam = exam
        self._credit: dict[int, float] = {}  # of facts quoted
        self._foreign: list[str] = []
        self._mentions: Counter[tuple[str, frozenset[int] | None]] = Counter()
        self._named: list[_Name] = []  # the names that were told, the last one last
        self._place = (0, 0)  # of the word that is read
        self._ahead: list[frozenset[int]] = []  # of them those told since the last fact
        self._reached = 0  # the last section of which something was told without a name
        self._is_misplaced = False  # a fact was told of another thing than its own
        self._told: list[tuple[str, frozenset[int]]] = []  # what was said, and the facts of one cell that it may be
        self._called: dict[int, set[str]] = {}  # section -> what stands before its facts and in the question
        self._is_right = False  # a yes or no was told that is the wanted one
        self._verdict = (0, 0)  # what stands behind it in its sentence
        columns = {spell(column) for column in exam.columns if column}
        halves = Halves(exam.bare_facts)
        told = by_column(answer, exam.of_things, {*exam.names, *columns}, halves.whole)
        self._text = self._without_verdicts(halves.joined(normalise(told)))
        self._prose: set[tuple[str, frozenset[int]]] = set()  # clauses of the reference, and of whom
        words, unknown = exam.lexicon.read(self._text, exam.echoes)
        pieces = [one.span() for start, end in unknown for one in PIECE.finditer(self._text, start, end)]
        is_misquoted = self._is_right and is_misquoted_by(exam, self._text)
        if self._is_right and not is_misquoted:
            unknown = [one for one in pieces if not self._is_why(*one)]
        self._around, after = Around(exam, self._text, words), 0
        last = 0
        for start, end, word in names_first(exam, words):
            if "\n" in self._text[last:start] and len(self._ahead) > 1:  # a line of several names begins no row
                self._ahead = []
            if self._around.is_own_label(start):
                self._told.append(("", frozenset()))
                if all(exam.rows) and (len({*exam.rows}) > 1 or re.search(r"\w", self._text[after:start])):
                    self._named = [one for one in self._named if self._is_of_row(one.sections)]
            last = end
            self._is_shared = self._around.is_label(start, end)  # told before each of several items
            self._lead: slice | None = slice(after, start)  # what was told since the last fact, until one is
            self._read(word, start, end)
            after = end if self._lead is None else after
        self._foreign += [self._text[start:end] for start, end in self._around.foreign(unknown)]
        if is_misquoted:
            self._foreign.append("other words in a quote")
        if any(map(self.is_torn, exam.axes)) or self._is_exchanged():
            self._foreign.append("told of another row, column or heading")
            self._is_misplaced = True

    def _without_verdicts(self, text: str) -> str:
        """The text without its yes or no, if that is the right one; another is a lie."""
        left = list(text)
        for start, end, is_yes in self._verdicts(text):
            self._is_misplaced |= self._exam.verdict is not None and is_yes is not self._exam.verdict
            if is_yes is not self._exam.verdict:
                self._foreign.append(text[start:end].strip())
            self._is_right |= is_yes is self._exam.verdict
            left[start:end] = " " * (end - start)
            ends = SENTENCE_END.search(text, end)
            self._verdict = (end, ends.start() if ends else len(text))
        return "".join(left)

    def _verdicts(self, text: str) -> list[tuple[int, int, bool]]:
        """Each yes and no that is told, in words of its own or the question's, and not as a fact."""
        if not self._exam.is_verdict:
            return []
        own = [*verdicts.told(text, leads=True)]
        taken = {place for start, end, _ in own for place in range(start, end)}
        asked = " ".join([self._exam.question, *map(normalise, {*self._exam.rows})])
        said = [one for one in verdicts.repeated(text, asked) if taken.isdisjoint(range(*one[:2]))]
        said = [one for one in said if not self._exam.tells(text[one[0] : one[1]])]
        return sorted([*(one for one in own if spell(text[one[0] : one[1]]) not in self._exam.of_form), *said])

    def _is_why(self, start: int, end: int) -> bool:
        """Whether what stands here is said in one sentence with the right yes or no, in known words."""
        is_told = self._is_right and self._verdict[0] <= start < self._verdict[1]
        return is_told and is_known_to(self._exam, self._text[start:end])

    @property
    def is_right(self) -> bool:
        """Whether the wanted yes or no was told, and no lie."""
        return self._is_right and not self._is_misplaced

    @property
    def is_clean(self) -> bool:
        """Whether nothing but facts and free words was said."""
        return not self._foreign

    @property
    def text(self) -> str:
        """What was read, without its yes or no."""
        return self._text

    def takes(self, summary: Reading) -> bool:
        """Whether another reading repeats only what was credited here; what else it says counts here too."""
        is_repeated = bool(summary._credit) and summary._credit.keys() <= self._credit.keys()
        if is_repeated:
            self._foreign += summary._foreign
            self._is_misplaced |= summary._is_misplaced
            self._text += f"\n{summary._text}"
        return is_repeated

    def is_talk(self) -> bool:
        """Whether the whole says nothing of what is asked."""
        _, unknown = self._exam.lexicon.read(self._text, self._exam.echoes)
        return not self._exam.tells(self._text) and is_frame(self._text, unknown, is_last=True)

    def is_torn(self, axis: dict[str, frozenset[int]]) -> bool:
        """Whether facts of one cell are told of what others of them stand under."""
        tied = frozenset[int]().union(*axis.values())
        sections = {self._exam.items[i].section for i in tied}
        told, breaks = list[Told](), set[int]()
        for word, facts in self._told:
            if word in self._exam.wholes and not told and facts & tied:  # tells its own headings
                continue
            if word in axis:
                told.append((word, frozenset(), True))
            elif not word:  # a label of the answer's own begins another part where the last one has said something
                told += [("", frozenset(), True)] if told and not told[-1][2] else []
            elif facts & tied and (facts <= tied or word in self._exam.wholes):
                above = frozenset(heading for heading, under in axis.items() if under & facts)
                told += [(one, frozenset(), True) for one in above if word.startswith(one.rstrip())]  # says it itself
                told.append((word, above, False))
            else:  # a heading of another kind begins a row, and what stands before another cell's fact is that cell's
                while facts and told and told[-1][2] and not sections & {self._exam.items[i].section for i in facts}:
                    told.pop()
                breaks.add(len(told))
        return is_torn(told, frozenset(breaks))

    def _call(self, facts: Sequence[int]) -> None:
        """Note what the text before facts of one section calls it, where nothing else names it, and no row is one."""
        sections = {self._exam.facts[i].section for i in facts}
        if self._lead and not self._exam.names and len(sections) == 1 and not self._is_of_one_row:
            called = self._called.setdefault(sections.pop(), set())
            called.update(run for *_, run in self._exam.echoes.read(self._text[self._lead])[0])
        self._lead = None

    def _is_exchanged(self) -> bool:
        """Whether the answer calls things in another order than the question: a name stands there once."""
        asked = self._exam.question
        for first, second in combinations(sorted(self._called), 2):
            ours, theirs = self._called[first], self._called[second]
            places = [
                [asked.find(run) for run in told if asked.count(run) == 1 and len(run) > MIN_NAME_CHARS]
                for told in (ours - theirs, theirs - ours)
            ]
            if all(places) and min(places[0]) > max(places[1]):
                return True
        return False

    def _read(self, word: str, start: int, end: int) -> None:
        exam, before, following = (
            self._exam,
            self._text[max(0, start - MAX_NAME_CHARS) : start],
            self._text[end : end + 1],
        )
        self._place, told_of = (start, end), self._told_of()
        if word in exam.wholes:  # of a cell that is quoted whole nothing is told under another heading of it
            parts = [exam.of_form[part] for part in dict.fromkeys(exam.wholes[word])]
            told = frozenset(i for facts in parts for i in facts if len(facts) == 1)
            self._told += [
                (one, frozenset())
                for axis in exam.axes
                for one in axis
                if told <= axis[one] and one in self._head(word)
            ]
            self._told.append((word, told))
        elif word in exam.of_form:
            self._told += [(word, frozenset())] if any(word in axis for axis in exam.axes) else []
        elif exam.question not in word:
            self._told += [(heading, frozenset()) for *_, heading in exam.headings.read(word)[0]]
            self._tell(word, exam.beside.get(word, ()))
        named = self._name_by_heading(word) if word in exam.wholes or word in exam.of_form else self._named
        if self._is_under_another_column(word, before):
            self._foreign.append(word.replace(" ", ""))
            self._is_misplaced = True
        is_label = FIELD.match(self._text, end) or self._is_heading(before, following)
        if word in exam.labels and not (is_label or self._around.is_column(start, end)):
            self._foreign.append(word.replace(" ", ""))
        is_owner = following in ("的", ":") and word in exam.question
        if not is_owner and word in exam.of_form:
            self._quote(word, exam.of_form[word])
            self._named = named
        elif word in exam.wholes:
            for part in dict.fromkeys(exam.wholes[word]):
                self._quote(part, exam.of_form[part], tells=False)
            self._named = named
        elif exam.question not in word:  # the question again names nobody
            ends = [one for one in exam.of_form if word in exam.own and one in word]
            fact = max(ends, key=len, default="")
            self._name(word.removesuffix(fact))
            if fact:
                self._quote(fact, exam.of_form[fact])
        if word in exam.prose:  # of the thing that it begins with, or that was named before
            asked = frozenset(fact.section for fact in exam.facts)
            begins = any(word[:at].isspace() for at, *_ in exam.callers.read(word)[0])
            self._prose.add((exam.prose[word], asked & ((self._told_of() if begins else told_of) or asked)))

    @property
    def _is_of_one_row(self) -> bool:
        """Whether all sections are columns of one row."""
        return len({*self._exam.rows} - {""}) == 1

    def _is_of_row(self, sections: frozenset[int]) -> bool:
        """Whether a name of these tells one row from others."""
        return len({*self._exam.rows}) > 1 and len({self._exam.rows[n] for n in sections}) == 1

    def _name(self, text: str) -> None:
        """A label names what the names in it name, of several things the longest."""
        told = [self._exam.names[name] for name in sorted((n for *_, n in self._exam.callers.read(text)[0]), key=len)]
        told = told if told and frozenset.intersection(*told) else told[-1:]
        self._ahead += told
        self._named = [
            *(name for name in self._named if name.sections not in told),
            *(_Name(one, self._place[0]) for one in told),
        ]

    def _is_under_another_column(self, word: str, before: str) -> bool:
        """Whether right before what one column says, as its label, stands the name of another one."""
        exam, label = self._exam, UNDER.search(before)
        if not label or not any(exam.columns) or word not in {*exam.of_form, *exam.wholes}:
            return False
        said = spell(label[1].replace("的", ""))
        things = {" ", *exam.texts, *map(spell, exam.rows)}
        called = {one for one in map(spell, exam.columns) if f"{said.removesuffix(one)} " in things}
        facts = [exam.facts[i] for part in exam.wholes.get(word, [word]) for i in exam.of_form[part]]
        own = [f"{spell(exam.columns[n])}{exam.texts[n]}" for n in (fact.section for fact in facts)] if called else []
        return bool(own) and not any(column in text for column in called for text in own)

    def _head(self, word: str) -> str:
        """What a fact or a whole cell begins with before the first fact."""
        facts = [i for part in self._exam.wholes.get(word, [word]) for i in self._exam.of_form[part]]
        return word[: max(0, min(word.find(spell(self._exam.facts[i].forms[0])) for i in facts)) + 1]

    def _name_by_heading(self, word: str) -> list[_Name]:
        """A heading that is quoted with its fact, or with its whole cell, names it; the names of what comes after."""
        facts = [i for part in self._exam.wholes.get(word, [word]) for i in self._exam.of_form[part]]
        sections, named = {self._exam.facts[i].section for i in facts}, self._named
        if all(sections & ahead for ahead in self._ahead[-1:]):  # else it is told of another thing
            self._name(self._head(word))
        self._ahead = []
        is_whole = word in self._exam.wholes or sum(fact.section in sections for fact in self._exam.facts) == 1
        return named if is_whole else self._named

    def _is_heading(self, before: str, following: str) -> bool:
        """Whether a word between these begins a clause, or ends a line behind words of the question."""
        name = before[1 + max(before.rfind(sign) for sign in BEGINS) :].strip()
        is_list = all(not one.strip() or spell(one) in self._exam.names for one in JOINT.split(name))
        return is_list or following == ":" or (following == "\n" and spell(name) in self._exam.question)

    def _told_of(self) -> frozenset[int] | None:
        """The sections that the names told so far leave, the last ones first: a drug's name, then a field's."""
        left: frozenset[int] | None = None
        for name in reversed(self._named):
            left = name.sections if left is None else left & name.sections or left
        return left

    def _is_of_every(self, facts: Sequence[int]) -> bool:
        """Whether facts of some rows are told of all: "both have", "三者都"."""
        rows = {*self._exam.rows}
        if not self._lead or len(rows) < 2 or rows == {self._exam.rows[self._exam.facts[i].section] for i in facts}:
            return False
        lead = self._text[self._lead]
        return EVERY.search(lead[max(map(lead.rfind, SENTENCE_ENDS)) + 1 :]) is not None

    def _quote(self, word: str, facts: Sequence[int], *, tells: bool = True) -> None:
        sections = {self._exam.facts[i].section for i in facts}
        named = self._told_of()
        if named and named.isdisjoint(sections):
            self._named = [name for name in self._named if not self._is_past(name)]
            named = self._told_of()
        if self._is_of_every(facts):
            self._foreign.append(word.replace(" ", ""))
            self._is_misplaced = True
        self._mentions[word, named] += not self._is_shared
        self._call(facts)
        mine = [i for i in facts if named is None or self._exam.facts[i].section in named]
        if not mine and self._is_beside(word, named):
            return
        self._is_misplaced |= not mine
        for name in self._named:
            if mine and name.sections & sections:
                name.told_until = self._place[1]
        if tells:
            self._tell(word, mine)
        free = FREE_MENTIONS if len(self._exam.facts) > 1 else ALONE_MENTIONS
        if not mine or self._mentions[word, named] > free * max(len(facts), self._exam.times[word]):
            self._foreign.append(word.replace(" ", ""))
        elif named is None and self._exam.names:
            self._quote_unnamed(mine)
        else:
            self._credit |= dict.fromkeys(mine, 1.0)

    def _is_past(self, name: _Name) -> bool:
        """Whether a column's name, in one line with its fact, ends with that fact's sentence or line."""
        if name.told_until is None or self._is_of_row(name.sections) or "\n" in self._text[name.at : name.told_until]:
            return False
        return SENTENCE_END.search(self._text, name.told_until, self._place[0]) is not None

    def _is_beside(self, word: str, named: frozenset[int] | None) -> bool:
        """Whether the thing that is named says that too, of which it is not asked."""
        return any(self._exam.items[i].section in (named or ()) for i in self._exam.beside.get(word, ()))

    def _tell(self, word: str, facts: Sequence[int]) -> None:
        """A fact with its heading before it in one word tells both, but not where it begins with that word itself."""
        named, items = self._told_of(), self._exam.items
        facts = [i for i in facts if named is None or items[i].section in named]
        if not self._exam.axes or len({items[i].section for i in facts}) != 1:
            return
        bare = {spell(items[i].forms[0]) for i in facts}
        headings = (one for axis in self._exam.axes for one in axis if word != one and word.startswith(one))
        self._told += [
            (one, frozenset())
            for one in headings
            if word.removeprefix(one.rstrip()) in bare or not any(text.startswith(one) for text in bare)
        ]
        if (word, frozenset()) not in self._told[-1:]:  # the heading of a row was told as such
            self._told.append((word, frozenset(facts)))

    def _quote_unnamed(self, facts: Sequence[int]) -> None:
        """Facts without a name: as they are asked for, one after the other, or anyhow; columns of one row anyhow unless
        the answer counts on their order."""
        sections = {i: self._exam.facts[i].section for i in facts}
        is_told_apart = self._is_of_one_row and not IN_TURN.search(self._text)  # columns by what they say
        is_in_order = is_told_apart or max(sections.values()) >= self._reached
        credit = IN_ORDER if is_in_order else OUT_OF_ORDER
        if len(set(sections.values())) == 1:
            self._reached = max(self._reached, *sections.values())
        untold = [i for i in facts if i not in self._credit]
        self._credit |= {i: credit for i in untold if sections[i] == sections[untold[0]]}

    def verdict(self) -> ReferenceVerdict:
        facts = self._exam.facts
        coverage = max(sum(self._credit.values()) / len(facts), self._reworded())
        coverage = float(self._is_right) if self._exam.is_alone else coverage
        is_whole = self._is_right and self._credit and not self._exam.asks_more  # a yes or no, and why
        coverage = 1.0 if is_whole else coverage
        value = _f1(coverage) if not self._foreign else self._distrusted(coverage)
        if self._exam.in_order and list(self._credit) != sorted(self._credit):
            value = min(value, SAME_WORDS)
        missing = [fact.forms[0] for i, fact in enumerate(facts) if i not in self._credit and coverage < 1]
        is_open = self._foreign and not self._lies() and (value <= _f1(coverage) or not coverage)
        return ReferenceVerdict(
            value, coverage, missing, list(dict.fromkeys(self._foreign)), (1 - coverage) * bool(is_open)
        )

    def _lies(self) -> bool:
        """Whether what is neither fact nor free denies, asks, has a number of its own, or is told of another thing."""
        exam, said = self._exam, spell("\n".join(self._foreign))
        known = {*exam.question.split(), *(word for fact in exam.facts for word in spell(fact.forms[0]).split())}
        has_number = any(word not in known for word in said.split() if any(map(str.isdecimal, word)))
        return self._is_misplaced or has_number or "?" in said or DENYING.search(said) is not None

    def _reworded(self) -> float:
        """How far more than half of the reference is said, where it tells the facts in other words."""
        if not self._prose:
            return 0.0
        told = Reading(self._exam, self._exam.reference)._prose
        n, of = (sum(len(clause) for clause, _ in clauses) for clauses in (told & self._prose, told))
        return max(0.0, 2 * n / (of or 1) - 1)

    def _distrusted(self, coverage: float) -> float:
        """The value of an answer that also says what nothing explains."""
        if self._is_misplaced:
            return DENIED * _f1(coverage)
        quoted = sum(len(self._exam.facts[i].forms[0]) for i in self._credit)
        trust = _f1(coverage) * quoted / (quoted + sum(map(len, self._foreign)))
        value = (CAP - SAME_WORDS) * trust + SAME_WORDS * likeness(self._text, self._exam.facts)
        value *= DENIED if coverage and DENYING.search("".join(self._foreign)) else 1.0
        return min(value, _f1(coverage) or SAME_WORDS)


def is_misquoted_by(exam: Exam, text: str) -> bool:
    """Whether a text has other words or numbers where the evidence has its own."""
    others = f"{exam.question}{spell(normalise(exam.reference))}"
    counted = (spell(found[0]) for found in COUNTED.finditer(text) if not is_frame(found[0], [(0, len(found[0]))]))
    is_new_unit = any(not any(one in known for known in (*exam.texts, others)) for one in counted)
    return is_new_unit or is_misquoted(spell(text), exam.between, {*others.split()})


def is_known_to(exam: Exam, text: str) -> bool:
    """Whether a text beside a yes or no has words of question, reference and record alone, and of talk; behind a yes it
    denies nothing."""
    strange = [one for one in spell(text).split() if stem(one) not in exam.words | VERDICT_WORDS]
    is_talk = not strange or is_frame(text, [(0, len(text))], is_last=True)
    return is_talk and (exam.verdict is False or not DENYING.search(text))


def likeness(text: str, facts: Sequence[Fact]) -> float:
    """The share of neighbouring characters in common; a clause that denies has none."""
    asked = pairs_of(*(fact.forms[0] for fact in facts))
    said = pairs_of(*(clause for clause in CLAUSE_END.split(text) if not DENYING.search(clause)))
    return 2 * (said & asked).total() / (pairs_of(text) + asked).total()


def _f1(coverage: float) -> float:
    """F1 of this recall and a precision of 1: an answer that says nothing else says nothing wrong."""
    return 2 * coverage / (1 + coverage)
