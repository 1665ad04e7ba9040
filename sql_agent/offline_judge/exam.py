"""What an answer is held against: the facts of the reference with their subjects, the evidence, the question.

Guarantees: pure functions on text, cached, because a group of rollouts asks for the same exam. Facts are what stands
between separators; a label before a colon reads "ENTITY的FIELD".
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from sql_agent.offline_judge.normal import normalise
from sql_agent.offline_judge.text import asked_runs, clauses, core, denies, items, mask, tokens, weight

HALF = 0.5
SUBJECT_WEIGHT = 2
JOINED = r"\s*(?:[、/]|和|与|跟|同|及|以及|\bvs\.?|\band\b)\s*"
FORBIDDING = re.compile(r"禁|忌|\bcontraindicat")


@dataclass(frozen=True)
class Phrase:
    """A fact of the reference, or (index -1) of the evidence.

    `subject`: the entity or field it is told of, where the reference tells of several. `core`: the text of an
    unlabelled fact without the question's words and filler at its ends. `negated`: its label denies it.
    """

    text: str
    index: int = -1
    subject: str = ""
    negated: bool = False
    core: str = ""


@dataclass(frozen=True)
class Exam:
    """What an answer is held against: facts, evidence, the question, and those of its words that are neutral.

    `unattributed` is the credit of a fact told without naming its subject; `entities` are what the reference tells of,
    where the question names it; `forbids`: the question asks for contraindications.
    """

    facts: list[Phrase]
    quotes: list[Phrase]
    question: str
    asked: str
    subjects: list[str]
    unattributed: float
    entities: list[str]
    forbids: bool


@functools.lru_cache(maxsize=1024)
def make_exam(question: str, reference: str, evidence: tuple[str, ...]) -> Exam:
    """Cached: a group of rollouts asks for the same one."""
    question = asked = normalise(question)
    found = _with_subjects(list(dict.fromkeys(_labelled_facts(normalise(reference)))), question)
    subjects, of_entities = _subjects([label for label, _ in found], question)
    told = [(label, text) for label, text in found if label or core(text, question)]
    if not any(core(text, question) for _, text in told):
        # "A or B, which one?": the answer stands in the question, so its words cannot be neutral.
        told, asked = found, ""
    facts = [
        Phrase(
            text=text,
            index=i,
            subject=subjects.get(label, ""),
            negated=denies(mask(label, question)),
            core="" if label else core(text, asked),
        )
        for i, (label, text) in enumerate(told)
    ]
    quotes = [Phrase(text) for quote in evidence for clause, _ in clauses(normalise(quote)) for text in items(clause)]
    names = sorted(set(subjects.values()), key=len, reverse=True)
    entities = {label.partition("的")[0] for label, _ in found if "的" in label}
    known = sorted(name for name in entities if name and name in question)
    forbids = FORBIDDING.search(question) is not None
    return Exam(facts, quotes, question, asked, names, HALF if of_entities else 1.0, known, forbids)


def _labelled_facts(reference: str) -> Iterator[tuple[str, str]]:
    """(label, fact): the label is what stood before the last colon of the sentence."""
    label = ""
    for clause, end in clauses(reference):
        if end == ":":
            label = clause.strip()
            continue
        yield from ((label, item) for item in items(clause))
        if end and end in "。!?\n":
            label = ""


def _with_subjects(found: list[tuple[str, str]], question: str) -> list[tuple[str, str]]:
    """Facts that begin with one of the subjects that the question compares ("甲和乙"), with it as their label.

    A fact that names none belongs to the subject before it. Unchanged where facts have labels already.
    """
    subject, told = "", []
    for label, text in found:
        runs = [(a, b) for a, b in asked_runs(text, question) if a == 0 and b < len(text)]
        name = text[: runs[0][1]].partition("的")[0].strip() if runs else ""
        subject = name if weight(tokens(name)) >= SUBJECT_WEIGHT else subject
        told.append(
            (label or (f"{subject}的" if subject else ""), text.removeprefix(subject).removeprefix("的") or text)
        )
    names = "|".join(re.escape(label.removesuffix("的")) for label, _ in told)
    compared = all(label for label, _ in told) and re.search(rf"({names}){JOINED}(?!\1)(?:{names})", question)
    return told if compared and not any(label for label, _ in found) else found


def _subjects(labels: list[str], asked: str) -> tuple[dict[str, str], bool]:
    """The subject of each label, where the reference tells of several things that the question names.

    Labels read "ENTITY的FIELD"; subjects are the entities, or the fields of the one entity. The flag: entities.
    """
    parts = {label: label.partition("的") for label in labels if label}
    of_entities = len({entity for entity, _, _ in parts.values()}) > 1
    subjects = {label: entity if of_entities else field for label, (entity, _, field) in parts.items()}
    named = len(set(subjects.values())) > 1 and all(s and s in asked for s in subjects.values())
    return (subjects if named else {}), of_entities
