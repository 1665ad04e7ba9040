"""What an answer is held against: the asked facts and the words that may stand around them.

Facts are the items of the evidence (what stands between separators) that the reference states, in whatever words; these
words say the same fact. Where it states none (a count, no evidence), its own items are the facts. Free are the closed
list, evidence and reference where they are no facts, and words of the question, but none that judges and none that a
judging word (不, 能) was cut from.
Guarantees: pure functions on text, cached, because a group of rollouts asks for the same exam.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations

from rapidfuzz import fuzz

from sql_agent.offline_judge.lexicon import DENYING, Lexicon, longest_run, stands_in
from sql_agent.offline_judge.normal import normalise
from sql_agent.offline_judge.words import PHRASES, RELATIONS

SENTENCE_END = re.compile(r"[。!?\n]+")
ITEM_END = re.compile(r"[;,、]+|(?<!\d)\.|\.(?!\d)")
LABEL_END = re.compile(r"(?<!\d):|:(?!\d)")
PART_END = re.compile(r"的|包括")
CLAUSE_END = re.compile(r"[,;:、。?!\n]")
YES_OR_NO = re.compile(r"[吗否]|(.)[不没]\1")  # the words of such a question are a statement
MODAL = re.compile(r"(?<![功性机可])能|可以")
JUDGING = re.compile(rf"{DENYING.pattern}|[禁忌慎停]|避免|{MODAL.pattern}")
MIN_RUN_CHARS, MIN_DENYING_RUN_CHARS, MAX_RUN_CHARS = 2, 4, 24
MIN_OWN_CHARS, ALIKE = 4, 60  # the reference states an item in its own words that are so long and so like it
JOINING = "和与跟同及、/"  # what stands between two things that a question compares
COUNTERS = "种个款项条类点"
Item = tuple[str, str]  # its label, and what it says


@dataclass(frozen=True)
class Fact:
    """One asked fact: the texts that state it, and the section (a thing or a field asked for) that it belongs to."""

    forms: tuple[str, ...]
    section: int


@dataclass(frozen=True)
class Exam:
    """What is asked. `names` tell sections apart (name -> its sections); `lexicon` holds facts and free words."""

    question: str
    facts: list[Fact]
    names: dict[str, frozenset[int]]
    of_form: dict[str, list[int]]
    lexicon: Lexicon
    echoes: Lexicon  # of the question


@functools.lru_cache(maxsize=1024)
def make_exam(question: str, reference: str, evidence: tuple[str, ...]) -> Exam | None:
    """None where there is no fact to compare with."""
    question = normalise(question).rstrip("?。 ")
    cells = [pair for quote in evidence for pair in _items(normalise(quote))]
    record = list(dict.fromkeys(item for _, item in cells))
    told = list(dict.fromkeys(_sections(normalise(reference), question))) or [("", item) for item in record]
    labels, said = list(dict.fromkeys(label for label, _ in told)), [item for _, item in told]
    closed = {question, f"{question}?", *map(normalise, PHRASES.split())}
    free = {*closed, *_relations(question), *(run for label in labels for run in _runs(label, question))}
    shared = {run for item in (*record, *said) for run in _runs(item, question)}
    echoes = {*_echoes(question), *(run for run in shared if not JUDGING.search(run))}
    usable = [item for item in record if item in said or item not in question]
    core, asked = Lexicon(free).core, Lexicon(shared)
    facts = _supported(told, usable, functools.partial(core, also=Lexicon(echoes)))
    facts = facts or [(label, (own, item)) for label, item in told if (own := core(item, asked))]
    if facts:
        free |= {*record, *said, *labels, *(f"{above}:{item}" for above, item in cells if above)}
    else:  # "A or B, which one?": the answer stands in the question, so its words are not free
        free, echoes, facts = closed, set[str](), [(label, (item,)) for label, item in told]
    led = [(label, (*forms, *(f"{above}:{i}" for above, i in cells if above and i in forms))) for label, forms in facts]
    return _exam(question, [Fact(forms, labels.index(label)) for label, forms in led], labels, free, echoes)


def _exam(question: str, facts: list[Fact], labels: list[str], free: set[str], echoes: set[str]) -> Exam | None:
    of_form = {form: [i for i, f in enumerate(facts) if form in f.forms] for fact in facts for form in fact.forms}
    if not any(form.isdecimal() for form in of_form):  # "4种：" before four facts says nothing else
        sizes = {len(facts), *Counter(fact.section for fact in facts).values()}
        free = free | {f"{n}{counter}" for n in sizes for counter in COUNTERS}
    runs = [list(_runs(label, question)) for label in labels]
    names = {run: frozenset(i for i, found in enumerate(runs) if run in found) for of_one in runs for run in of_one}
    names = {run: sections for run, sections in names.items() if len(sections) < len(labels)}
    return Exam(question, facts, names, of_form, Lexicon({*free, *of_form}), Lexicon(echoes)) if facts else None


def _items(text: str) -> Iterator[Item]:
    """(label, item): the label is what stood before the last colon of the sentence."""
    for sentence in SENTENCE_END.split(text):
        label = ""
        for clause in ITEM_END.split(sentence):
            *before, item = (part.strip() for part in LABEL_END.split(clause))
            label = before[-1] if before else label
            if item:
                yield label, item


def _sections(reference: str, question: str) -> list[Item]:
    """(label, item) of a reference. Where it has no colon, the question's name that begins an item is its label."""
    told = list(_items(reference))
    label, named = "", []
    for _, item in told:
        start = longest_run(item, 0, question)
        if MIN_RUN_CHARS <= start < len(item):
            label, item = item[:start].removesuffix("的"), item[start:].removeprefix("的")
        named.append((label, item))
    labels = {label for label, _ in named}
    several = all(labels) and any(f"{a}{sign}{b}" in question for a, b in permutations(labels, 2) for sign in JOINING)
    return named if several and not any(label for label, _ in told) else told


def _supported(told: list[Item], record: list[str], bare: Callable[[str], str]) -> list[tuple[str, tuple[str, ...]]]:
    """(label, forms) of the evidence's items that the reference states; its own words for an item are a form of it."""
    forms: dict[Item, dict[str, None]] = {}
    for label, said in told:
        own = bare(said) if len(bare(said)) >= MIN_OWN_CHARS else said
        stated = [said] if said in record else [item for item in record if stands_in(said, item)]
        stated = stated or [item for item in record if stands_in(item, said)]
        alike = [i for i in record if min(len(i), len(own)) > MIN_OWN_CHARS and fuzz.partial_ratio(i, own) >= ALIKE]
        for item in stated or alike:
            forms.setdefault((label, item), {item: None}).update({said: None, own: None})
    return [(label, tuple(words)) for (label, _), words in forms.items()]


def _runs(text: str, question: str) -> Iterator[str]:
    """The longest parts of the text that the question has too."""
    for part in PART_END.split(text):
        start = 0
        while start < len(part):
            n = longest_run(part, start, question)
            if n >= MIN_RUN_CHARS:
                yield part[start : start + n]
            start += max(n, 1)


def _echoes(question: str) -> Iterator[str]:
    """Parts of the question that may be said again: none that asks yes or no, none that a judging word was cut from."""
    for clause in CLAUSE_END.split(question):
        sign = JUDGING.search(clause)
        starts = 0 if YES_OR_NO.search(clause) else sign.start() + 1 if sign else len(clause)
        for run in (clause[start : start + n] for start in range(starts) for n in range(1, MAX_RUN_CHARS + 1)):
            if not MODAL.search(run) and len(run) >= (MIN_DENYING_RUN_CHARS if DENYING.search(run) else MIN_RUN_CHARS):
                yield run


def _relations(question: str) -> list[str]:
    """How a sentence says the one kind of thing that the question asks for; nothing where it asks for several."""
    asked = [(found.start(), says) for wanted, says in RELATIONS if (found := re.search(wanted, question))]
    judged = len(asked) != 1 or JUDGING.search(question[: asked[0][0]].replace("除了", ""))  # 不适用于 asks for no use
    return [] if judged else [normalise(word) for word in asked[0][1].split()]
