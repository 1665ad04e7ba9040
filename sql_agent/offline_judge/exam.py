"""What an answer is held against: the asked facts and the words that may stand around them.

Facts are the items of the evidence that the reference states, whoever wrote the reference; the reference's own words
say the same fact. Where it states none of them (a count, a reference without evidence), the items of the reference are
the facts, without the question's words at their ends. Items are what stands between separators.
Guarantees: pure functions on text, cached, because a group of rollouts asks for the same exam; an evidence item that
the reference leaves out, and a sentence of the reference that no evidence supports, are free and earn nothing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sql_agent.offline_judge.lexicon import MIN_RUN_CHARS, Lexicon, foreign, longest_run, pairs_of
from sql_agent.offline_judge.normal import normalise
from sql_agent.offline_judge.words import PHRASES, RELATIONS

SENTENCE_END = re.compile(r"[。!?\n]+")
ITEM_END = re.compile(r"[;,、]+|(?<!\d)\.|\.(?!\d)")
LABEL_END = re.compile(r"(?<!\d):|:(?!\d)")
ASKING = re.compile(r"[吗呢?]")  # never free: a fact that is asked back is not stated
ALIKE, MIN_ALIKE_CHARS = 0.6, 6  # an item of six characters or more is stated where so many of its pairs stand
COUNTERS = "种个款项条类点"


@dataclass(frozen=True)
class Fact:
    """One asked fact: the texts that state it, and the section (a thing or a field asked for) that it belongs to."""

    forms: tuple[str, ...]
    section: int


@dataclass(frozen=True)
class Exam:
    """What is asked. `names` tell sections apart (name -> its sections); `lexicon` holds all facts and free words.

    `asked` is the question as far as its words are free, without the signs of a question.
    """

    question: str
    facts: list[Fact]
    names: dict[str, frozenset[int]]
    of_form: dict[str, list[int]]
    lexicon: Lexicon
    asked: str


@functools.lru_cache(maxsize=1024)
def make_exam(question: str, reference: str, evidence: tuple[str, ...]) -> Exam | None:
    """None where there is no fact to compare with."""
    question = normalise(question).rstrip("?。 ")
    items = list(dict.fromkeys(item for quote in evidence for _, item in _items(normalise(quote))))
    told = _sections(normalise(reference), question)
    labels = list(dict.fromkeys(label for label, _ in told))
    facts = _supported(told, items, labels, question) if told else [Fact((item,), 0) for item in items]
    asked = ASKING.sub("\0", question)
    if not facts:
        facts = [Fact(_core_forms(item, question), labels.index(label)) for label, item in told]
        facts = [fact for fact in facts if fact.forms[0]]
    if not facts:  # "A or B, which one?": the answer stands in the question, so its words are not free
        asked, facts = "", [Fact((item,), labels.index(label)) for label, item in told]
    facts = list(dict.fromkeys(facts))
    if not facts:
        return None
    return _exam(question, asked, facts, labels, [*items, *(item for _, item in told)])


def _exam(question: str, asked: str, facts: list[Fact], labels: list[str], free: Iterable[str]) -> Exam:
    names = _names(labels, question)
    of_form: dict[str, list[int]] = {}
    for i, fact in enumerate(facts):
        for form in dict.fromkeys(fact.forms):
            of_form.setdefault(form, []).append(i)
    words = {*free, *_phrases(), *names, *(run for label in labels for run in _runs(label, asked))}
    words |= {word for wanted, says in _relations() if _asks_only(question, wanted) for word in says}
    words |= set(labels) if asked else set()
    if not any(form.isdecimal() for form in of_form):  # "4种：" before four facts says nothing else
        n_in = [sum(fact.section == section for fact in facts) for section in range(len(labels) or 1)]
        words |= {f"{n}{counter}" for n in (len(facts), *n_in) for counter in COUNTERS}
    return Exam(question, facts, names, of_form, Lexicon({*words, *of_form}), asked)


def _items(text: str) -> Iterator[tuple[str, str]]:
    """(label, item): the label is what stood before the last colon of the sentence."""
    for sentence in SENTENCE_END.split(text):
        label = ""
        for clause in ITEM_END.split(sentence):
            *before, item = (part.strip() for part in LABEL_END.split(clause))
            label = before[-1] if before else label
            if item:
                yield label, item


def _sections(reference: str, question: str) -> list[tuple[str, str]]:
    """(label, item) of a reference. Where it has no colon, the question's name that begins an item is its label."""
    told = list(_items(reference))
    if any(label for label, _ in told):
        return told
    label, named = "", []
    for _, item in told:
        start = longest_run(item, 0, question)
        if MIN_RUN_CHARS <= start < len(item):
            label, item = item[:start].removesuffix("的"), item[start:].removeprefix("的")
        named.append((label, item))
    return named if len({label for label, _ in named}) > 1 and all(label for label, _ in named) else told


def _supported(told: Sequence[tuple[str, str]], items: Sequence[str], labels: list[str], question: str) -> list[Fact]:
    """The evidence's items that the reference states, each with the reference's words for it."""
    forms: dict[tuple[int, str], list[str]] = {}
    for label, said in told:
        usable = [item for item in items if item == said or item not in question]
        for item in [said] if said in usable else usable:
            key = item if _holds(said, item) else said if _holds(item, said) else ""
            if key:
                forms.setdefault((labels.index(label), key), [key]).extend((item, said))
    return [Fact(tuple(dict.fromkeys(words)), section) for (section, _), words in forms.items()]


def _holds(text: str, part: str) -> bool:
    if part in text:
        return True
    pairs = pairs_of(part)
    return len(part) >= MIN_ALIKE_CHARS and len(pairs & pairs_of(text)) >= ALIKE * len(pairs)


def _core_forms(item: str, question: str) -> tuple[str, ...]:
    """The item without the question's and the free words at its ends, and the item."""
    left = foreign(item, [(start, end) for start, end, _ in _phrase_lexicon().find(item)], question)
    return (item[left[0][0] : left[-1][1]], item) if left else ("",)


def _runs(label: str, question: str) -> list[str]:
    """The label's parts that the question names."""
    found, i = [], 0
    for part in label.split("的"):
        i = 0
        while i < len(part):
            n = longest_run(part, i, question)
            found += [part[i : i + n]] if n >= MIN_RUN_CHARS else []
            i += max(n, 1)
    return found


def _names(labels: Sequence[str], question: str) -> dict[str, frozenset[int]]:
    """Words of the question that stand in some labels and not in all: they say of what is told."""
    sections: dict[str, set[int]] = {}
    for i, label in enumerate(labels):
        for run in _runs(label, question):
            sections.setdefault(run, set()).add(i)
    return {run: frozenset(found) for run, found in sections.items() if len(found) < len(labels)}


@functools.cache
def _phrases() -> frozenset[str]:
    return frozenset(normalise(phrase) for phrase in PHRASES.split())


@functools.cache
def _phrase_lexicon() -> Lexicon:
    return Lexicon(_phrases())


@functools.cache
def _relations() -> list[tuple[list[str], list[str]]]:
    return [(wanted.split(), [normalise(word) for word in says.split()]) for wanted, says in RELATIONS]


def _asks_only(question: str, wanted: Sequence[str]) -> bool:
    """True when the question asks for this kind of thing and for no other of `RELATIONS`."""
    kinds = [words for words, _ in _relations() if any(word in question for word in words)]
    return kinds == [wanted]
