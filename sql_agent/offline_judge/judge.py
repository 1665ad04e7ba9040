"""The offline judge: which share of the asked facts does an answer quote, and does it say anything else?

    coverage = quoted facts / asked facts
    value    = 2 * coverage / (1 + coverage)     where nothing else is said (F1 with a precision of 1)
    value    < CAP                               where anything else is said, and less the more it is

A fact is quoted where it stands in the answer word for word (in the normal form). What is neither fact nor free
(exam.py) is foreign: it may deny all the rest ("千万别当真："), so nothing beside it is trusted.
Guarantees: deterministic, value in [0, 1], linear in the answer's length, nothing is cut off. Text that states nothing
asked, quoted or in part, never raises the value. Not covered: rewording; whether the reference is right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from sql_agent.offline_judge import choices, verdicts
from sql_agent.offline_judge.doubts import is_frame
from sql_agent.offline_judge.exam import Exam, make_exam
from sql_agent.offline_judge.lexicon import DENYING, spell
from sql_agent.offline_judge.normal import UNSEEN, normalise
from sql_agent.offline_judge.offers import without_offers, without_sources
from sql_agent.offline_judge.reading import DENIED, Reading, ReferenceVerdict, is_known_to, is_misquoted_by
from sql_agent.offline_judge.sections import Cell
from sql_agent.offline_judge.slots import LIGHT, stem
from sql_agent.offline_judge.typed import Truth, kind_of_texts, truth_of, typed_value
from sql_agent.offline_judge.values import plain
from sql_agent.records import AnswerType

SUMMARY = re.compile(
    r"总之|總之|综上|总的来说|总体(?:来说|而言)|概括来说|简而?言之|简单来说|一句话"
    r"|\b(?:in (?:short|summary|brief|conclusion|sum)|to (?:sum up|summari[sz]e)|overall|summary)\b",
    re.I,
)


def grade(
    *,
    question: str,
    reference: str,
    answer: str,
    evidence: Sequence[str | Cell] = (),
    kind: AnswerType | Literal[""] = "",
) -> ReferenceVerdict | None:
    """Compare `answer` with the facts; None where reference and evidence hold no fact to compare with.

    `kind` says what the truth is: a value, in an answer of any words, or a text, which is quoted; "" looks at its form.
    None too where the truth is none of its kind, or stands in the question.
    """
    answer, cells = UNSEEN.sub(" ", answer), [Cell(cell) if isinstance(cell, str) else cell for cell in evidence]
    truth, looks = _truth(question, reference, cells, kind)
    typed = _typed(truth, question, answer, is_quoted=not kind) if truth else None
    if kind and kind != "text":
        return typed
    exam = _exam(question, reference, tuple(evidence))
    quoted = _quoted(exam, question, reference, cells, answer) if exam else None
    if not typed or not exam or not quoted:
        return typed or quoted
    denies = exam.verdict is not None or verdicts.DENIES.search(normalise(reference))
    is_verdict = denies and exam.is_verdict and looks != "yes_no"  # a clause that answers yes or no
    is_better = not quoted.foreign and quoted.value > typed.value
    return quoted if is_better or exam.names or is_verdict else typed


def _truth(
    question: str, reference: str, cells: Sequence[Cell], kind: AnswerType | Literal[""]
) -> tuple[Truth | None, str]:
    """The value that is asked for, if it is one, and of which kind it is."""
    looks = kind or kind_of_texts(question, reference, [cell.text for cell in cells])
    said = None if kind else verdicts.alone(normalise(question).rstrip("?。 "), normalise(reference))
    if said is not None:
        return truth_of(question, "yes" if said else "no", [], "yes_no"), looks
    truth = truth_of(question, reference, cells, looks) if looks and looks != "text" else None
    shown = spell(plain("\n".join(cell.text for cell in cells)))
    is_shown = kind or not cells or (truth and all(spell(value) in shown for value in truth.values))
    return truth if is_shown else None, looks  # what the evidence has in other words is no value


def _typed(truth: Truth, question: str, answer: str, *, is_quoted: bool) -> ReferenceVerdict:
    value = typed_value(truth, question=question, answer=answer, is_quoted=is_quoted)
    return ReferenceVerdict(value, value, [] if value else [*truth.values], [])


def _quoted(exam: Exam, question: str, reference: str, cells: Sequence[Cell], answer: str) -> ReferenceVerdict:
    """What the answer's quotes earn; all where it chooses rightly, or explains the right yes or no, or is the reference
    in whatever words that is told."""
    every = ReferenceVerdict(1.0, 1.0, [], [])
    told = spell(normalise(answer))
    if _is_explained(exam, answer) or (told.strip() and told == spell(normalise(reference))):
        return every
    quoted = _read(exam, answer).verdict()
    asked = normalise(question).rstrip("?。 ")
    truths = (normalise(reference), choices.of_rows(asked, cells))
    choice = next((found for text in truths if (found := choices.choice(asked, text, cells))), None)
    is_chosen = _chooses(exam, choice, asked, answer) if choice else None
    if choice and is_chosen is None and choice.other in told:  # beside the other a name alone is no answer
        is_name = all(choice.chosen in spell(fact.forms[0]) for fact in exam.facts)
        is_chosen = False if is_name or told.find(choice.other) < told.find(choice.chosen) else None
    if is_chosen is None:
        return quoted
    return every if is_chosen else replace(quoted, value=DENIED * quoted.value)


def _chooses(exam: Exam, which: choices.Choice, asked: str, answer: str) -> bool | None:
    """Whether an answer chooses rightly; None where it says neither, or something that evidence and question do not."""
    said = normalise(without_offers(answer, lambda text: exam.tells(normalise(text))))
    for start, end, heading in reversed(exam.headings.read(said)[0]):
        said = f"{said[:start]} {said[end:]}" if DENYING.search(heading) else said  # 不良反应 denies nothing
    is_chosen = choices.told(which, asked, said)
    return (
        None
        if is_chosen and _strange(exam, asked, choices.AGAINST.sub(" ", choices.without_other(which, said)))
        else is_chosen
    )


def _is_explained(exam: Exam, answer: str) -> bool:
    """Whether an answer says the right yes or no, and why in words of the evidence, and nothing else."""
    if not exam.is_verdict or exam.verdict is None:
        return False
    reading = _read(exam, answer)
    said = reading.text
    told = {stem(one) for one in spell(said).split()} - {stem(one) for one in exam.question.split()}
    told_of, asked = _sections(exam, said), {fact.section for fact in exam.facts}
    if not asked <= told_of if exam.asks_more else told_of and told_of.isdisjoint(asked):  # it tells of another column
        return False
    spans = [said[start:end] for start, end in exam.lexicon.read(said, exam.echoes)[1]]
    is_known = bool(told & exam.words) and all(is_known_to(exam, one) for one in spans)
    return reading.is_right and is_known and not is_misquoted_by(exam, said)


def _sections(exam: Exam, said: str) -> set[int]:
    """The cells of which a text tells something."""
    quoted = {word for *_, word in exam.lexicon.read(said, exam.echoes)[0]}
    return {exam.items[i].section for of in (exam.beside, exam.of_form) for word in quoted for i in of.get(word, ())}


def _strange(exam: Exam, asked: str, said: str) -> bool:
    """Whether a text has words that neither evidence nor question has, and that are no talk."""
    spans = (said[start:end] for start, end in exam.lexicon.read(said, exam.echoes)[1])
    ours = LIGHT | {stem(word) for word in spell(asked).split()}
    unsaid = [one for one in spans if not {stem(word) for word in spell(one).split()} <= ours]
    strange = [one for one in unsaid if not any(spell(one) in text for text in exam.texts)]
    return not all(is_frame(one, [(0, len(one))], is_last=True) for one in strange)


@lru_cache(maxsize=1024)
def _exam(question: str, reference: str, evidence: tuple[str | Cell, ...]) -> Exam | None:
    """With the axes that the evidence itself does not break: a heading may be a word of the text too."""
    exam = make_exam(question, reference, evidence)
    if not exam or not exam.axes:
        return exam
    texts = [cell if isinstance(cell, str) else cell.text for cell in evidence] or [reference]
    read = [Reading(exam, text) for text in ("\n".join(texts), *texts)]
    return replace(exam, axes=[axis for axis in exam.axes if not any(one.is_torn(axis) for one in read)])


def _read(exam: Exam, answer: str) -> Reading:
    """Reads an answer without offers and advice; by itself a summary at its end that tells nothing new."""
    answer = without_offers(answer, lambda text: exam.tells(normalise(text)))
    answer = without_sources(answer, lambda text: exam.tells(normalise(text)))
    begins = [found.start() for found in SUMMARY.finditer(answer)][-1:]
    for begin in begins:
        said, summary = Reading(exam, answer[:begin]), Reading(exam, answer[begin:])
        if said.takes(summary) or summary.is_talk():
            return said
    said = Reading(exam, answer)
    if said.is_clean or not exam.prose:
        return said
    bare = Reading(replace(exam, prose={}, lexicon=exam.record), answer)  # a reference's clause may end within a fact
    return bare if bare.is_clean else said
