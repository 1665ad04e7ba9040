"""What stands around the facts of an answer: frames, labels, captions, joints and remarks; what is none of these is
foreign.

Guarantees: linear in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from itertools import groupby, pairwise

from sql_agent.offline_judge.doubts import CITES, is_frame, says_they_differ
from sql_agent.offline_judge.echoes import JUDGING
from sql_agent.offline_judge.exam import Exam
from sql_agent.offline_judge.layout import captions, is_caption, is_joint
from sql_agent.offline_judge.lexicon import DENYING, spell
from sql_agent.offline_judge.remarks import CLAUSE_END as REMARK_END
from sql_agent.offline_judge.remarks import LIGHT, is_by_dictionary, is_glue, is_remark, is_talk
from sql_agent.offline_judge.slots import stem
from sql_agent.offline_judge.words import COLUMNS

SENTENCE_ENDS = ".!?;\n。"
SENTENCE_END, FRAME_END = re.compile(f"[{SENTENCE_ENDS}]"), re.compile(r"[:;,、\n]")
LABEL_ENDS = re.compile(r"[^:;,。.?!|\n]{0,24}?(?=[:|]|(?<![a-z])(?:are|is|includes?)(?![a-z])|[为是有]|包括)")
COLUMN_ENDS = re.compile(r"[^:;,。.?!|\n]{0,24}(?=[:\n])")
NO_WORD, LABEL_BEGINS = "|;:,。.=-·*、\n ", "\n:;。|"  # behind what the answer calls a part, and before it
PIECE = re.compile(r"(?:[^.!?;|\n。]|\.(?=\d))*(?:[^;\n。])")  # of what is unknown, to the end of its sentence or field
MARKS = "|;:,。.= "  # around words
BEGINS = "\n|,;。、的"  # a label that judges ("禁忌") stands at the beginning of a clause, and is a claim elsewhere
TAKES, WHILE = {"服用", "使用", "应用", "用", "吃"}, {"期间", "时", "后"}
MAX_CLAUSE = 200  # characters before what is unknown in it, and behind
MIN_NAME_CHARS, MAX_NAME_CHARS = 4, 60  # with the blanks around it
LEAST_QUOTED, MOST_BESIDE = 12, 0.4  # characters quoted, and the share of these that remarks and glue may have


def names_first(exam: Exam, words: Sequence[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Known words as they are read: where names stand behind their facts all along ("X (A), Y (B)"), before these."""
    every = frozenset(fact.section for fact in exam.facts)
    marks = list[tuple[int, tuple[frozenset[int], ...]]]()
    for n, (_, _, word) in enumerate(words):
        is_fact = word in exam.of_form or word in exam.wholes or word in exam.beside.keys() - exam.names.keys()
        called = () if is_fact or exam.question in word else exam.callers.read(word)[0]
        named = tuple(exam.names[name] for *_, name in called if not every <= exam.names[name])
        if is_fact or named:
            marks.append((n, named))
    groups = [[*group] for _, group in groupby(marks, lambda mark: bool(mark[1]))]
    told = [[one for _, named in group for one in named] for group in groups]
    if told and len({*told[0]}) == len(told[0]) > 1 and not frozenset.intersection(*told[0]):  # what is compared
        groups, told = groups[1:], told[1:]
    is_behind = len(told) > 2 and told[-1] and not told[0] and all(frozenset.intersection(*one) for one in told[1::2])
    order = {n: n for n in range(len(words))}
    for facts, names in zip(groups[::2], groups[1::2], strict=True) if is_behind else ():
        order |= {n: facts[0][0] - 0.5 for n, _ in names}
    return [words[n] for n in sorted(order, key=lambda n: order[n])]


class Around:
    """What stands around the facts of an answer's text, whose known words are `words`."""

    def __init__(self, exam: Exam, text: str, words: Sequence[tuple[int, int, str]]) -> None:
        self._exam = exam
        self._text = text
        self._words = words
        self._last = next((start for start, _, word in reversed(words) if word.strip() not in LIGHT), 0)

    def foreign(self, unknown: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
        """What is unknown but in sentences, or beginnings of one that a fact ends, that say whence a quote is."""
        told = {*self._exam.of_form, *self._exam.wholes, *self._exam.prose}
        facts = [(start, end) for start, end, word in self._words if word in told]
        quotes = [(start, end) for start, end, word in self._words if word in told or word in self._exam.beside]
        if not facts:
            return unknown
        pieces = (m.span() for start, end in unknown for m in PIECE.finditer(self._text, start, end))
        unknown = [(start, end) for start, end in pieces if not self._text[start:end].isspace()]
        unknown = [(start, end) for start, end in unknown if not self._is_layout(start, end)]
        known = [self._exam.question, *self._exam.texts]
        starts, left = [start for start, _ in unknown], list[tuple[int, int]]()
        for (_, after), (until, _) in pairwise([(0, 0), *facts, (len(self._text),) * 2]):
            ends = SENTENCE_END.search(self._text, after, until)
            begin = 0 if not after else ends.end() if ends else until
            begin = after if CITES.match(self._text, after, until) else begin
            first, sentence, last = (bisect_left(starts, place) for place in (after, begin, until))
            left += unknown[first:sentence]
            while sentence < last:
                start = starts[sentence]
                begin = max(begin, *(self._text.rfind(sign, begin, start) + 1 for sign in SENTENCE_ENDS))
                ends = SENTENCE_END.search(self._text, start, until)
                stop = bisect_left(starts, ends.end() if ends else until)
                here = [(start - begin, end - begin) for start, end in unknown[sentence:stop]]
                tells = self._text[begin : ends.end() if ends else until]
                tells = tells[: next((m.start() for m in FRAME_END.finditer(tells, here[-1][1])), len(tells))]
                whole = self._text[begin : ends.start() if ends else until]
                is_talk = is_frame(tells, here, is_last=until == len(self._text))
                is_free = (is_talk and not is_by_dictionary(tells, here, known)) or (
                    self._exam.compares and says_they_differ(whole)
                )
                left += [] if is_free else unknown[sentence:stop]
                sentence = stop
        strange = [one for one in left if not self._is_beside_facts(*one, quotes)]
        free = sum(end - start for start, end in left) - sum(end - start for start, end in strange)
        quoted = sum(end - start for start, end in facts)  # beside a value of its own a word says too much
        return strange if quoted >= LEAST_QUOTED and free <= MOST_BESIDE * quoted else left

    def _is_beside_facts(self, start: int, end: int, facts: Sequence[tuple[int, int]]) -> bool:
        """Whether what is unknown here is a remark, or glue between facts."""
        begins = REMARK_END.finditer(self._text, max(0, start - MAX_CLAUSE), start)
        begin = max((found.end() for found in begins), default=max(0, start - MAX_CLAUSE))
        until = min(len(self._text), end + MAX_CLAUSE)
        ends = REMARK_END.search(self._text, end, until)
        until = ends.start() if ends else until
        first = bisect_left(facts, begin, key=lambda fact: fact[1])
        here = facts[first : bisect_left(facts, until, lo=first, key=lambda fact: fact[0])]
        if here and end > here[-1][1] and self._text[start:end].strip(MARKS) not in LIGHT:  # joins nothing
            return False
        if here:
            ends = [begin, *(place for fact in here for place in fact), until]
            around = " # ".join(self._text[a:b] for a, b in zip(ends[::2], ends[1::2], strict=True))
            return is_glue(self._text[start:end], around, self._known_stems)
        return is_remark(self._text[begin:until], self._known_stems, max(self._n_counted, len({*self._exam.rows})))

    def _is_layout(self, start: int, end: int) -> bool:
        """Whether what is unknown here claims nothing: a label of the cell or of the answer's own, a joint, a count."""
        piece = self._text[start:end]
        start += len(piece) - len(piece.lstrip(MARKS))
        piece = piece.strip(MARKS)
        asked = "" if self._exam.is_verdict else self._exam.question  # what a yes or no is asked of is no echo
        if (
            self.is_label(start, end)
            or self.is_column(start, end)
            or self._is_beside_name(start, end)
            or start < self._last
            and is_joint(piece, self._text[start + len(piece) :], self._n_counted, asked)
        ):
            return True
        return any(
            is_caption(self._text[first:last])
            and (is_head or not any(spell(self._text[first:last]) in text for text in self._exam.texts))
            for first, last, is_head in self._captions
            if first <= start <= start + len(piece) <= last
        )

    def _is_beside_name(self, start: int, end: int) -> bool:
        """Whether it stands at a name of the question and says that one takes it, or when: 服用X期间."""
        piece, (begins, ends) = self._text[start:end].strip(MARKS), self._asked_places
        return (piece in TAKES and end in begins) or (piece in WHILE and start in ends)

    @cached_property
    def _asked_places(self) -> tuple[set[int], set[int]]:
        """Where words of the question begin, and where they end; nowhere where it judges one."""
        if JUDGING.search(self._exam.question.replace(" ", "").replace("不良", "")):  # 不良反应 denies nothing
            return set(), set()
        asked = [(start, end) for start, end, word in self._words if word in self._exam.question]
        return {start for start, _ in asked}, {end for _, end in asked}

    @cached_property
    def _known_stems(self) -> set[str]:
        """Of the words of the question and of the columns' names."""
        return {stem(word) for text in (self._exam.question, *self._exam.columns) for word in spell(text).split()}

    @cached_property
    def _n_counted(self) -> int:
        """How many facts may be counted: none where one of them is a number."""
        facts = self._exam.facts
        return 0 if any(form.isdecimal() for fact in facts for form in fact.forms) else len(facts)

    @cached_property
    def _captions(self) -> list[tuple[int, int, bool]]:
        return captions(self._text, len({*self._exam.rows}))

    def is_label(self, start: int, end: int) -> bool:
        """Whether words of a cell stand here, before a colon and an item of that cell."""
        ends = LABEL_ENDS.match(self._text, end)
        label = spell(self._text[start : ends.end()]) if ends else " "
        if not ends or not label.strip() or DENYING.search(label):
            return False
        sections = {n for n, text in enumerate(self._exam.texts) if label in text}
        return any(self._exam.items[i].section in sections for i in self._told_behind(ends.end()))

    def _told_behind(self, place: int) -> list[int]:
        """What the next word behind a place may tell: facts, and what is beside them."""
        after = bisect_left(self._words, place, key=lambda word: word[0])
        word = self._words[after][2] if after < len(self._words) else ""
        facts = [i for part in self._exam.wholes.get(word, [word]) for i in self._exam.of_form.get(part, ())]
        return [*facts, *self._exam.beside.get(word, ())]

    def is_column(self, start: int, end: int) -> bool:
        """Whether a label stands here that asks for the column of the fact behind it."""
        ends = COLUMN_ENDS.match(self._text, end)
        if not ends:
            return False
        first = max(0, start - MAX_CLAUSE)
        begin = max(first, *(self._text.rfind(sign, first, start) + 1 for sign in BEGINS))
        facts = self._told_behind(ends.end())
        columns = [self._exam.columns[self._exam.items[i].section] for i in facts]
        label = self._text[begin : ends.end()]
        signs = (wanted for wanted, called in COLUMNS if any(re.search(called, one) for one in columns))
        asks = [found.span() for sign in signs for found in re.finditer(f"(?:{sign})[a-z]*", label)]
        told = "".join(
            char if not any(a <= n < b for a, b in asks) else " " for n, char in enumerate(label[: end - begin])
        )
        return bool(asks) and is_talk(told[start - begin :], self._known_stems)

    def is_own_label(self, start: int) -> bool:
        """Whether what stands before a place is what the answer calls a part itself, which names none of the record."""
        before = self._text[max(0, start - MAX_NAME_CHARS) : start]
        said = before.rstrip(NO_WORD)
        at = max(said.rfind(sign) for sign in LABEL_BEGINS)
        label = said[at + 1 :]
        is_label = not {":", "\n"}.isdisjoint(before[len(said) :]) and said[at : at + 1] not in ("|", ":")
        if not is_label or not re.search(r"[^\W\d]", label):
            return False
        return not (self._exam.callers.read(label)[0] or self._exam.headings.read(label)[0])
