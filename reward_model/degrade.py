"""Answers of known quality, made from a reference answer: right ones in other words' order, and wrong ones by kind.

    empty          nothing, the question again, or a phrase without a fact
    dropped        some facts of the reference are missing
    invented       facts of other entities are added
    wrong_entity   every fact is replaced by one of another entity

Guarantees: `value` is computed from the facts that were kept and added (the harmonic mean of coverage and support);
an added fact is not in the reference; style (order, numbering, opening) is drawn alike for right and wrong answers, so
it gives nothing away. A reference is read as sentences `heading：fact；fact。`; other text counts as one fact.
Not covered: contradictions, wrong numbers, and rewording.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["right", "empty", "dropped", "invented", "wrong_entity"]
WRONG: tuple[Kind, ...] = ("empty", "dropped", "invented", "wrong_entity")
STOP, COLON, SEPARATOR = "。", "：", "；"
NOTHING_SAID = ["", "", "数据库中没有这一条记录。", "好的。", "抱歉，我无法回答这个问题。"]
OPENINGS = ["", "", "", "根据数据库查询，", "查询结果如下：", "经查，"]


@dataclass(frozen=True)
class Section:
    """A heading (may be empty) and its facts."""

    heading: str
    facts: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """An answer, what was done to it, and its value in [0, 1]."""

    text: str
    kind: Kind
    value: float


def sections_of(reference: str) -> list[Section]:
    """The sections of a reference answer."""
    sections = []
    for sentence in filter(None, (part.strip() for part in reference.split(STOP))):
        heading, colon, rest = sentence.partition(COLON)
        facts = tuple(fact.strip() for fact in (rest if colon else sentence).split(SEPARATOR) if fact.strip())
        if facts:
            sections.append(Section(heading if colon else "", facts))
    return sections


def facts_of(sections: list[Section]) -> list[str]:
    """The facts of all sections."""
    return [fact for section in sections for fact in section.facts]


def right_answer(sections: list[Section], rng: random.Random) -> Answer:
    """All facts, in a style of their own."""
    return Answer(_render(sections, rng), "right", 1.0)


def wrong_answer(
    kind: Kind, sections: list[Section], *, question: str, strange_facts: list[str], rng: random.Random
) -> Answer | None:
    """An answer of this kind, or None where the reference does not allow it (one fact cannot be dropped in part).

    `strange_facts` are facts of other entities, of a like kind.
    """
    known = "".join(facts_of(sections))
    strange = [fact for fact in strange_facts if fact not in known]
    if kind == "empty":
        return Answer(rng.choice([*NOTHING_SAID, question]), kind, 0.0)
    if kind == "dropped":
        return _dropped(sections, rng)
    if not strange:
        return None
    if kind == "wrong_entity":
        facts = [tuple(dict.fromkeys(rng.choices(strange, k=len(section.facts)))) for section in sections]
        wrong = [replace(section, facts=each) for section, each in zip(sections, facts, strict=True)]
        return Answer(_render(wrong, rng), kind, 0.0)
    n_added = rng.randint(1, max(1, len(facts_of(sections))))
    return _invented(sections, rng.sample(strange, min(len(strange), n_added)), rng)


def _dropped(sections: list[Section], rng: random.Random) -> Answer | None:
    places = [(i, j) for i, section in enumerate(sections) for j in range(len(section.facts))]
    if len(places) < 2:
        return None
    gone = set(rng.sample(places, rng.randint(1, len(places) - 1)))
    remaining = [
        replace(section, facts=tuple(fact for j, fact in enumerate(section.facts) if (i, j) not in gone))
        for i, section in enumerate(sections)
    ]
    coverage = 1 - len(gone) / len(places)
    return Answer(
        _render([section for section in remaining if section.facts], rng), "dropped", 2 * coverage / (1 + coverage)
    )


def _invented(sections: list[Section], added: list[str], rng: random.Random) -> Answer:
    at = rng.randrange(len(sections))
    facts = [*sections[at].facts]
    for fact in added:
        facts.insert(rng.randint(0, len(facts)), fact)
    mixed = [*sections]
    mixed[at] = replace(sections[at], facts=tuple(facts))
    n_right = len(facts_of(sections))
    support = n_right / (n_right + len(added))
    return Answer(_render(mixed, rng), "invented", 2 * support / (1 + support))


def _render(sections: list[Section], rng: random.Random) -> str:
    """The sections as text, in one of several styles."""
    if rng.random() < 0.5:
        sections = [replace(s, facts=tuple(rng.sample(s.facts, len(s.facts)))) for s in sections]
    numbered = rng.random() < 0.25
    # A lone heading mostly repeats the question, and people leave it out.
    bare = len(sections) == 1 and rng.random() < 0.3
    return rng.choice(OPENINGS) + "".join(_sentence(section, numbered=numbered, bare=bare) for section in sections)


def _sentence(section: Section, *, numbered: bool, bare: bool) -> str:
    facts = [f"{n}. {fact}" if numbered else fact for n, fact in enumerate(section.facts, start=1)]
    heading = "" if bare or not section.heading else section.heading + COLON
    return heading + SEPARATOR.join(facts) + STOP
