"""What an answer is held against: the asked facts and the words that may stand around them.

Facts are the clauses of the evidence's cells that are asked for (asked.py). The reference is the evidence where there
is none, where it counts, and where it chooses from what the question offers. Free are all other text of evidence and
reference, the closed list, and what may be said of the question (echoes.py).
Guarantees: pure functions on text, cached, because a group of rollouts asks for the same exam.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from sql_agent.offline_judge import verdicts
from sql_agent.offline_judge.asked import asked_facts, is_evidence
from sql_agent.offline_judge.axes import Axis, axes_of, axes_of_records
from sql_agent.offline_judge.clauses import items_of, outer_headings
from sql_agent.offline_judge.doubts import COMPARES
from sql_agent.offline_judge.echoes import CLOSED, JUDGING, echoes_of, ways_to_say
from sql_agent.offline_judge.halves import Words, bare
from sql_agent.offline_judge.lexicon import Lexicon, spell
from sql_agent.offline_judge.misquotes import Between, between
from sql_agent.offline_judge.naming import names_of, translated
from sql_agent.offline_judge.normal import flat, normalise, with_headings
from sql_agent.offline_judge.offers import without_offers
from sql_agent.offline_judge.sections import ASK_END, ASKING, ORDER, Cell, Fact, Item, Names, Record, parts, runs
from sql_agent.offline_judge.slots import stem
from sql_agent.offline_judge.words import called_as

POLITE = re.compile(  # can you tell me
    r"^(?:请问)?[你您]?(?:能|可以?|能不能|可不可以)否?([请帮给和跟为]?我?.{0,2}"
    r"(?:告[诉知]|介绍|[讲列]|说[明说]|解释|总结).*?)吗?$"
)
TITLE = re.compile(  # what the reference tells of its thing
    r"(?<!目)的([^,;。:、\d]{2,6}?)(?:主?要?[是为:]|包括|如下|中)|\b(?:the|its) ([a-z]{4,}(?: [a-z]{4,})?)(?= of )"
)
MIN_OWN_CHARS = 4


@dataclass(frozen=True)
class Exam:
    """What is asked; words are spelt. `names` (read by `callers`) tell sections apart, those of `labels` only where a
    clause begins, and those `of_things` rows; `rows` and `columns` are those of sections; `wholes` are texts of many
    facts, `own` the reference's clauses, `prose` what it says in other words (its texts -> what is its own in them),
    `axes` are what a cell ties together (labels, the rows and the columns of its tables: heading -> items under it),
    `headings` all of these; `items` are the facts and, found by `beside`, what else the evidence says; `compares`: it
    asks how things differ; `is_verdict`: yes or no is asked, `verdict` is which of them; `times` counts how often the
    evidence says a word, `texts` are its cells, `lexicon` holds facts and free words, `record` all of these but the
    reference's, `echoes` the question's, `words` the stems of all of these."""

    question: str
    reference: str
    facts: list[Fact]
    names: Names
    of_things: set[str]
    rows: list[str]
    columns: list[str]
    callers: Lexicon
    labels: set[str]
    of_form: dict[str, list[int]]
    wholes: dict[str, list[str]]
    own: set[str]
    prose: dict[str, str]
    axes: list[dict[str, frozenset[int]]]
    headings: Lexicon
    items: list[Fact]
    beside: dict[str, list[int]]
    times: Counter[str]
    in_order: bool
    compares: bool
    is_verdict: bool
    is_alone: bool
    asks_more: bool  # behind its first question
    verdict: bool | None
    lexicon: Lexicon
    record: Lexicon
    echoes: Lexicon
    texts: list[str]
    words: set[str]

    @cached_property
    def between(self) -> Between:
        """What stands between any words of the evidence."""
        return between(self.texts)

    @cached_property
    def bare_facts(self) -> dict[str, Words]:
        """The words of each text that states a fact, without those of grammar."""
        return bare(self.of_form)

    def tells(self, text: str) -> bool:
        """Whether a text in normal form has a fact in it."""
        told = {*self.of_form, *self.wholes, *self.prose}
        return any(word in told for *_, word in self.lexicon.read(text)[0])


@dataclass(frozen=True)
class _Source:
    """What an exam is made of: question, reference and cells in normal form."""

    question: str
    reference: str
    shown: Sequence[Cell]

    @cached_property
    def told(self) -> list[Item]:
        """What the reference says."""
        return items_of(self.reference)

    @cached_property
    def items(self) -> Record:
        """What the evidence says, cell by cell."""
        return [items_of(normalise(cell.text)) for cell in self.shown]

    @cached_property
    def known(self) -> set[str]:
        """All of it, without its labels."""
        return {item for items in self.items for _, item in items}

    @cached_property
    def shared(self) -> set[str]:
        """What of the question evidence or reference say too."""
        asked = Lexicon(parts(self.question))
        texts = (text for items in (*self.items, self.told) for item in items for text in item)
        return {run for text in texts for run in runs(text, asked)}

    @cached_property
    def free(self) -> set[str]:
        """What says nothing of any fact: the question, the closed list, names of table and row."""
        rows = {text for cell in self.shown for text in (cell.row, *cell.row.split())}
        rows = {normalise(text) for text in rows if re.search(r"[^\W\d]|\d{3}", text)}
        return {self.question, f"{self.question}?", *CLOSED, *rows}

    @cached_property
    def around(self) -> set[str]:
        """Free words, and how a sentence says what is asked for."""
        return {*self.free, *ways_to_say(self.question)}

    @cached_property
    def labels(self) -> dict[str, list[str]]:
        """The reference's labels, and what of the question each of them says."""
        asked = Lexicon(parts(self.question))
        return {label: list(runs(label, asked)) for label, _ in self.told}

    @cached_property
    def own(self) -> dict[str, str]:
        """The reference's items, and what is left of each without free words and the question's."""
        free, others = Lexicon(self.around), Lexicon(self.shared)
        own = {item: free.core(item, others) for _, item in self.told}
        if verdicts.is_asked(self.question) and len(own) > 1:
            own |= {item: "" for item in own for at, end, _ in verdicts.told(item) if item[at:end] == item}
        return own

    @property
    def is_alone(self) -> bool:
        """Whether a yes or no is all that the reference says."""
        return verdicts.alone(self.question, self.reference) is not None

    @cached_property
    def is_by_reference(self) -> bool:
        """Whether the reference is what answers are held against."""
        return is_evidence(self.own, self.known)

    @property
    def cells(self) -> Sequence[Cell]:
        """What answers are held against; none where it is the reference."""
        return [] if self.is_by_reference else self.shown

    @cached_property
    def record(self) -> Record:
        """The items of each section: a cell, or a label of the reference."""
        by_label = [[item for item in self.told if item[0] == label] for label in self.labels]
        return by_label if self.is_by_reference else self.items

    def asked(self) -> list[Fact]:
        """The facts that are asked for; none where the answer stands in the question ("A or B, which one?")."""
        if self.is_by_reference:
            every = ((self.own[item], item, n) for n, items in enumerate(self.record) for _, item in items)
            return [Fact((core, item), n) for core, item, n in every if core]
        around = Lexicon({*self.around, *self.shared})
        return asked_facts(self.question, {} if self.is_alone else self.own, self.record, self.cells, around)

    def said(self, names: Names, columns: set[str]) -> set[str]:
        """What may be said where there are facts: free words, names, and all that evidence and reference say."""
        titles = {title for found in TITLE.findall(self.reference) for title in found if not JUDGING.search(title)}
        labels = {*self.labels, *(run for said in self.labels.values() for run in said)}
        labelled = {f"{above}:{item}" for items in self.record for above, item in items if self.cells}
        called = {one for column in columns for one in called_as(column) if not JUDGING.search(one)}
        return {*self.around, *names, *self.known, *self.own, *labels, *titles, *labelled, *called}

    def headings(self, axes: Sequence[Axis], facts: Sequence[Fact]) -> set[str]:
        """What may stand above facts, spelt; none that is a fact."""
        labels = [{spell(above) for above, _ in items if above} for items in self.record]
        headings = {heading for axis in axes for heading in axis}
        headings |= {text for texts in labels if len(texts) > 1 for text in texts}
        for cell in self.cells:
            headings |= {spell(text) for text in outer_headings(normalise(cell.text))}
            headings |= {spell(cell.column), *translated(cell.column, self.question)}
        return headings - {" ", *(spell(form) for fact in facts for form in fact.forms)}

    def wholes(self, facts: Sequence[Fact]) -> dict[str, list[str]]:
        """Each cell in one piece -> its facts."""
        flats = (
            (spell(normalise(flat(cell.text, sign))), n) for n, cell in enumerate(self.cells) for sign in ("", "\n")
        )
        forms = {(fact.section, spell(form)) for fact in facts for form in fact.forms}
        every = {form for _, form in forms}
        wholes = {text: [spell(item) for _, item in self.record[n] if (n, spell(item)) in forms] for text, n in flats}
        return {text: told for text, told in wholes.items() if told and text not in every}

    def prose(self, of_form: Collection[str]) -> dict[str, str]:
        """What the reference says in other words, and what is its own in it."""
        prose = {spell(item): spell(core) for item, core in self.own.items() if core}
        prose |= {core: core for core in prose.values() if len(core) > 2 * MIN_OWN_CHARS}
        quoting = Lexicon(of_form)  # what is made of facts is read as these
        return {text: core for text, core in prose.items() if quoting.read(text)[1]}


def _source(question: str, reference: str, evidence: Sequence[str | Cell]) -> _Source:
    cells = [Cell(cell) if isinstance(cell, str) else cell for cell in evidence]
    cells = [
        replace(cell, text=with_headings(cell.text), column=normalise(cell.column.replace("_", " "))) for cell in cells
    ]
    return _Source(POLITE.sub(r"\1", normalise(question).rstrip("?。 ")), normalise(reference), cells)


@lru_cache(maxsize=1024)
def make_exam(question: str, reference: str, evidence: tuple[str | Cell, ...]) -> Exam | None:
    """None where there is no fact to compare with."""
    source = _source(question, reference, evidence)
    asked = source.asked()
    facts = asked or [Fact((item,), n) for n, items in enumerate(source.record) for _, item in items]
    if not facts:
        return None
    question, record, cells, own = source.question, source.record, source.cells, source.own
    names = names_of(question, source.reference, record, cells, asked)
    items = [*facts, *_others(record, facts)]
    axes = axes_of(question, cells, record, items) if cells or not names else []
    axes += axes_of_records(question, cells, record, [] if names else source.told, facts)
    of_form, headings = _by_form(facts), source.headings(axes, facts)
    is_quote = {fact.forms[0] for fact in asked} <= {*own, *own.values()}
    prose = {} if is_quote else source.prose(of_form)
    wholes = source.wholes(facts)
    quoting = Lexicon(of_form)
    unquoted = {text for text in (*own, *own.values()) if spell(text) not in of_form and not quoting.read(text)[1]}
    said = source.said(names, {cells[fact.section].column for fact in facts if cells}) if asked else source.free
    words = {*said, *headings, *of_form, *wholes} - unquoted
    echoes = {*echoes_of(question), *(run for run in source.shared if not JUDGING.search(run))} if asked else set[str]()
    is_verdict = verdicts.is_asked(question)
    is_verdict &= source.is_alone or not any(True for form in of_form for _ in verdicts.told(form.strip()))
    row_of = [cell.row for cell in cells] or [""] * len(record)
    asked_of = [text for text in (normalise(cell.text) for cell in cells) if text in question]
    return Exam(
        question=spell(question),
        reference=reference,
        facts=facts,
        names={spell(name): sections for name, sections in names.items()},
        of_things={spell(name) for name, told in names.items() if len({row_of[n] for n in told}) == 1},
        rows=row_of,
        columns=[cell.column for cell in cells] or [""] * len(record),
        callers=Lexicon(names),
        labels={spell(name) for name in (*names, *headings) if JUDGING.search(name)} - {*of_form},
        of_form=of_form,
        wholes=wholes,
        own=set(map(spell, own)),
        prose=prose,
        axes=axes,
        headings=Lexicon(heading for axis in axes for heading in axis),
        items=items,
        beside=_by_form(items[len(facts) :], len(facts)),
        times=Counter(spell(item) for section in record for _, item in section),
        in_order=ORDER.search(question) is not None and not names,
        verdict=_verdict(question, source.reference, facts, asked_of) if is_verdict else None,
        compares=COMPARES.search(question) is not None,
        is_verdict=is_verdict,
        is_alone=source.is_alone,
        asks_more=any(ASKING.search(one) for one in ASK_END.split(question)[1:]),
        lexicon=_facts_first({*words, *prose}, of_form),
        record=_facts_first(words - {*own, *own.values()} | source.known, of_form),
        echoes=Lexicon(echoes),
        texts=[spell(normalise(cell.text)) for cell in cells],
        words=_stems(question, source.reference, *(f"{cell.column} {cell.text}" for cell in cells)),
    )


def _verdict(question: str, reference: str, facts: Sequence[Fact], names: Collection[str]) -> bool | None:
    """The yes or no of the reference, without what sends the reader to somebody; else that of the facts."""
    texts = (without_offers(reference, lambda _: False), "\n".join(fact.forms[0] for fact in facts))
    told = (verdicts.wanted(question, text, names) for text in texts if text)
    return next((one for one in told if one is not None), None)


def _facts_first(words: set[str], of_form: Collection[str]) -> Lexicon:
    """The words, of those that differ by words of grammar alone a fact before others, in whatever order they come."""
    return Lexicon(sorted(words, key=lambda word: (spell(word) not in of_form, word)), skips=True)


def _stems(*texts: str) -> set[str]:
    return {stem(word) for text in texts for word in spell(normalise(text)).split()}


def _by_form(facts: Sequence[Fact], first: int = 0) -> dict[str, list[int]]:
    of_form: dict[str, list[int]] = {}
    for i, fact in enumerate(facts, first):
        for form in dict.fromkeys(map(spell, fact.forms)):
            of_form.setdefault(form, []).append(i)
    return of_form


def _others(record: Record, facts: Sequence[Fact]) -> list[Fact]:
    """What the evidence says besides."""
    told = {(fact.section, form) for fact in facts for form in fact.forms}
    items = {(n, item): above for n, items in enumerate(record) for above, item in items if (n, item) not in told}
    return [Fact((item, f"{above}:{item}") if above else (item,), n) for (n, item), above in items.items()]
