"""What an answer is held against: the asked facts and the words that may stand around them.

Facts are the clauses of the evidence's cells; those that the reference says, word for word or in other words, weigh
most, and where it does nothing but quote they are all that is asked. Without evidence, where the reference is a count
and where it names what the question offers, its own clauses are the facts. A section is a cell or a label of the
reference, its names are what the question compares. Free are the closed list, what else the evidence says, and words of
the question, but none that judges and none that a judging word (不, 能) was cut from.
Guarantees: pure functions on text, cached, because a group of rollouts asks for the same exam.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rapidfuzz import fuzz

from sql_agent.offline_judge.lexicon import DENYING, Lexicon, spell, tokens
from sql_agent.offline_judge.normal import flat, normalise
from sql_agent.offline_judge.words import PHRASES, RELATIONS

SENTENCE_END = re.compile(r"[。!?\n]+|\.(?= |$)")
ITEM_END = re.compile(r"[;,、|]+|(?<!\d)\.|\.(?!\d)")
LABEL_END = re.compile(r"(?<!\d):|:(?!\d)")
CLAUSE_END = re.compile(r"[,;:、。?!\n]")
YES_OR_NO = re.compile(r"[吗否]|(.)[不没]\1")  # the words of such a question are a statement
MODAL = re.compile(r"(?<![功性机可])能|可以")
JUDGING = re.compile(rf"{DENYING.pattern}|[禁忌慎停]|避免|{MODAL.pattern}")
NO_NAME = re.compile(rf"[不禁忌慎]|避免|{MODAL.pattern}")
PART_END = re.compile(r"的|包括|[,;。?!:]|\b(?:of|for|in)\b")
JOINT = re.compile(r"[、/和与跟同及]|\b(?:and|or|vs|versus|with|from)\b")  # stands between things that are compared
ORDER = re.compile(r"顺序|次序|依次|排序|排列|从.{1,6}到|\b(?:order(?:ed)?|rank(?:ed)?|sort(?:ed)?|from .+ to)\b")
MIN_RUN_CHARS, MIN_DENYING_RUN, MAX_RUN = 2, 4, 24
MIN_OWN_CHARS = 4
ALIKE, ALIKE_LATIN = (
    60,
    80,
)  # the reference says a clause in own words that are so like it; letters are few, and like soon
UNTOLD = 0.05  # the weight of a clause that the reference leaves out, beside those that it has
COUNTERS = "种个款项条类点"
Item = tuple[str, str]  # its label, and what it says


@dataclass(frozen=True)
class Fact:
    """One asked fact: the texts that state it, the section that it belongs to, and what it weighs."""

    forms: tuple[str, ...]
    section: int
    weight: float = 1.0


@dataclass(frozen=True)
class Exam:
    """What is asked; words are spelt. `names` tell sections apart (name -> its sections), `wholes` are texts of many
    facts, `times` counts how often the evidence says a word, `lexicon` holds facts and free words, `echoes` those of
    the question."""

    question: str
    facts: list[Fact]
    names: dict[str, frozenset[int]]
    of_form: dict[str, list[int]]
    wholes: dict[str, list[str]]
    times: Counter[str]
    in_order: bool
    lexicon: Lexicon
    echoes: Lexicon


@functools.lru_cache(maxsize=1024)
def make_exam(question: str, reference: str, evidence: tuple[str, ...]) -> Exam | None:
    """None where there is no fact to compare with."""
    question = normalise(question).rstrip("?。 ")
    cells = [list(dict.fromkeys(_items(normalise(quote)))) for quote in evidence]
    told = list(dict.fromkeys(_items(normalise(reference))))
    record, said = [item for cell in cells for _, item in cell], [item for _, item in told]
    runs = {label: list(_runs(label, question)) for label, _ in told}
    closed = {question, f"{question}?", *map(normalise, PHRASES.split())}
    free = {*closed, *_relations(question), *(run for found in runs.values() for run in found)}
    shared = {run for item in (*record, *said) for run in _runs(item, question)}
    echoes = {*_echoes(question), *(run for run in shared if not JUDGING.search(run))}
    own = [Lexicon(free).core(item, Lexicon(shared)) for item in said]
    is_count = len(own) == 1 and own[0].isdecimal() and own[0] not in record
    names, wholes = _names(list(runs.values())), dict[str, list[str]]()
    if record and not is_count and (any(own) or set(said) <= set(record)):
        compared = _compared(question, cells)
        facts = [Fact((item,), list(runs).index(label)) for label, item in told if item in record]
        if len(facts) < max(1, len(told)) or (compared and not names):
            names = compared or (names if len(runs) == len(cells) else {})
            wholes = {
                spell(normalise(flat(quote))): [item for _, item in cell]
                for quote, cell in zip(evidence, cells, strict=True)
            }
            facts = _of_cells(cells, told, question, lambda text: Lexicon(free).core(text, Lexicon(echoes)))
    else:
        facts = [
            Fact((bare, item), list(runs).index(label)) for bare, (label, item) in zip(own, told, strict=True) if bare
        ]
    if facts:
        free |= {*names, *record, *said, *runs, *(f"{above}:{item}" for cell in cells for above, item in cell)}
    else:  # "A or B, which one?": the answer stands in the question, so its words are not free
        free, echoes, facts = closed, set[str](), [Fact((item,), list(runs).index(label)) for label, item in told]
    facts = [replace(fact, forms=(*fact.forms, *_led(fact, cells))) for fact in facts]
    times = Counter(spell(item) for quote in evidence for _, item in _items(normalise(quote)))
    return _exam(question, facts, names, wholes, times, free, echoes) if facts else None


def _exam(
    question: str,
    facts: list[Fact],
    names: dict[str, frozenset[int]],
    wholes: dict[str, list[str]],
    times: Counter[str],
    free: set[str],
    echoes: set[str],
) -> Exam:
    of_form: dict[str, list[int]] = {}
    for i, fact in enumerate(facts):
        for form in dict.fromkeys(map(spell, fact.forms)):
            of_form.setdefault(form, []).append(i)
    if not any(form.strip().isdecimal() for form in of_form):  # "4种：" before four facts says nothing else
        sizes = {len(facts), *Counter(fact.section for fact in facts).values()}
        free = free | {f"{n}{counter}" for n in sizes for counter in COUNTERS}
    parts = {text: [part for part in map(spell, items) if part in of_form] for text, items in wholes.items()}
    parts = {text: told for text, told in parts.items() if told and text not in of_form}
    return Exam(
        question=spell(question),
        facts=facts,
        names={spell(name): sections for name, sections in names.items()},
        of_form=of_form,
        wholes=parts,
        times=times,
        in_order=ORDER.search(question) is not None and not names,
        lexicon=Lexicon({*free, *of_form, *parts}),
        echoes=Lexicon(echoes),
    )


def _items(text: str) -> Iterator[Item]:
    """(label, item): the label is what stood before the last colon of the sentence, or at the end of the one before."""
    label = ""
    for sentence in SENTENCE_END.split(text):
        label = label if not sentence else label[:-1] if label.endswith(":") else ""
        for clause in ITEM_END.split(sentence):
            *before, item = (part.strip() for part in LABEL_END.split(clause))
            label = before[-1] if before else label
            if item:
                yield label, item
            elif before:
                label += ":"


def _led(fact: Fact, cells: Sequence[Sequence[Item]]) -> Iterator[str]:
    """The fact under the heading that it has in the evidence; without it a heading may be another's."""
    return (f"{above}:{item}" for cell in cells for above, item in cell if above and item in fact.forms)


def _of_cells(
    cells: Sequence[Sequence[Item]], told: Sequence[Item], question: str, bare: Callable[[str], str]
) -> list[Fact]:
    """The cells' items, and the reference's words for them. Cells that the question quotes and the reference does not
    are where it looked, not what it asks for, and so is the number of a row."""
    items = list(dict.fromkeys((n, item) for n, cell in enumerate(cells) for _, item in cell))
    forms = _said_of([item for _, item in told], list(dict.fromkeys(item for _, item in items)), bare)
    given = {item for _, item in items if spell(item) in spell(question)}
    asked = {n for n, item in items if item in forms and item not in given}
    looked_up = {n for n, item in items if item in given} - asked
    if asked and len(asked | looked_up) == len(cells):
        items = [(n, item) for n, item in items if n in asked]
    items = [(n, item) for n, item in items if item not in given and (item in forms or not item.isdecimal())] or items
    return [Fact((item, *forms.get(item, ())), n, 1.0 if item in forms or not forms else UNTOLD) for n, item in items]


def _said_of(told: Sequence[str], record: Sequence[str], bare: Callable[[str], str]) -> dict[str, list[str]]:
    """How the reference says items of the record: word for word, as a part or a whole of a clause, or in like words."""
    forms: dict[str, list[str]] = {}
    spelt = {item: spell(item) for item in record}
    for said in told:
        own = core if len(core := bare(said)) >= MIN_OWN_CHARS else said
        stated = [text for text in (said, own) if text in spelt][:1]
        stated = stated or [item for item in record if spelt[item] in spell(said)]
        stated = stated or [item for item in record if spell(said) in spelt[item]]
        least = ALIKE_LATIN if own.isascii() else ALIKE
        alike = [i for i in record if min(len(i), len(own)) > MIN_OWN_CHARS and fuzz.partial_ratio(i, own) >= least]
        for item in stated or alike:
            forms.setdefault(item, []).extend(text for text in (said, own) if text not in spelt)  # no clause is another
    return forms


def _names(runs: Sequence[Sequence[str]]) -> dict[str, frozenset[int]]:
    """What tells sections apart: each run with the sections that have it. Nothing where one section has no name."""
    names = {run: frozenset(i for i, found in enumerate(runs) if run in found) for of_one in runs for run in of_one}
    names = {run: sections for run, sections in names.items() if len(sections) < len(runs)}
    return names if len(frozenset[int]().union(*names.values())) == len(runs) else {}


def _compared(question: str, cells: Sequence[Sequence[Item]]) -> dict[str, frozenset[int]]:
    """The names of the things that the question compares, where the cells can be dealt out to them, in its order.

    Where a name begins or ends nobody can know: each end of what precedes a joint is a name, and each beginning of
    what follows it, but none that the other thing has too.
    """
    for part in PART_END.split(question):
        things = JOINT.split(part)
        size, rest = divmod(len(cells), len(things))
        if len(things) < 2 or rest or not size or not all(map(str.strip, things)):
            continue
        runs = [list(_ends(thing, first=not n, last=n == len(things) - 1)) for n, thing in enumerate(things)]
        named = _names(runs)
        alone = {
            name: one for name, one in named.items() if sum(spell(name) in spell(t) for t in things) == len(one) == 1
        }
        found = [
            {one for name, one in alone.items() if any(spell(name) in spell(i) for _, i in cell)} for cell in cells
        ]
        if len(set(alone.values())) == len(things) and all(len(named) < 2 for named in found):
            return {name: frozenset(range(n * size, (n + 1) * size)) for name, one in alone.items() for n in one}
    return {}


def _ends(text: str, *, first: bool, last: bool) -> Iterator[str]:
    """The ends of the first thing, the beginnings of the last, of others the whole; none that judges."""
    found = tokens(text)[-MAX_RUN:] if first else tokens(text)[:MAX_RUN]
    starts = [token.start() for token in found] if first else [found[0].start()] if found else []
    ends = [token.end() for token in found] if last and not first else [found[-1].end()] if found else []
    for run in (text[start:end] for start in starts for end in ends):
        if len(run) >= MIN_RUN_CHARS and not NO_NAME.search(run):
            yield run


def _runs(text: str, question: str) -> Iterator[str]:
    """The longest parts of the text that the question has too."""
    spelt = spell(question)
    for part in PART_END.split(text):
        found = tokens(part)
        start = 0
        while start < len(found):
            end = start
            while end < len(found) and f" {' '.join(token[0] for token in found[start : end + 1])} " in spelt:
                end += 1
            run = part[found[start].start() : found[end - 1].end()] if end > start else ""
            if len(run) >= MIN_RUN_CHARS:
                yield run
            start = max(end, start + 1)


def _echoes(question: str) -> Iterator[str]:
    """Parts of the question that may be said again: none that asks yes or no, none that a judging word was cut from."""
    for clause in CLAUSE_END.split(question):
        sign = JUDGING.search(clause)
        found = tokens(clause)
        last = -1 if YES_OR_NO.search(clause) else sign.start() if sign else len(clause)
        starts = (i for i, token in enumerate(found) if token.start() <= last)
        for run in (clause[found[i].start() : token.end()] for i in starts for token in found[i : i + MAX_RUN]):
            if not MODAL.search(run) and len(run) >= (MIN_DENYING_RUN if DENYING.search(run) else MIN_RUN_CHARS):
                yield run


def _relations(question: str) -> list[str]:
    """How a sentence says the one kind of thing that the question asks for; nothing where it asks for several."""
    asked = [(found.start(), says) for wanted, says in RELATIONS if (found := re.search(wanted, question))]
    judged = len(asked) != 1 or JUDGING.search(question[: asked[0][0]].replace("除了", ""))  # 不适用于 asks for no use
    return [] if judged else [normalise(word) for word in asked[0][1].split()]
