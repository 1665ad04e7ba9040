"""Who answers the question when an answer tells several things: the value, or another one beside the question's words.

"Ms Keller sent it, and Mr Ives signed for it" tells another value of what is asked where a clause without the value has
words of the question that the value's own clause lacks, and something of the value's form. Guarantees: pure functions,
linear in the text. Not covered: a clause that names nothing in the form of a value.
"""

from __future__ import annotations

import re
from collections.abc import Set
from itertools import pairwise

from sql_agent.offline_judge.doubts import TITLES
from sql_agent.offline_judge.lexicon import tokens
from sql_agent.offline_judge.slots import COMMON, HAN, content, is_form, stem, terms
from sql_agent.offline_judge.typed.calculation import without_numbers
from sql_agent.offline_judge.typed.sought import LABELLED, LATEST, MOMENT, YEAR, Sought, has_rival_number, is_counted
from sql_agent.offline_judge.values import DATE, NUMBER, TIME
from sql_agent.words.meanings import is_unknown

CLAUSE_END = re.compile(
    r"[;!?。；！？，：\n()（）]|[,:](?!\s*\d)|(?<=[^\W\d])(?<!\b[A-Z])\.(?=\s|$)|(?<=\d)\.(?=\s+[^\W\d])|\s[-–—]+\s|——"
    r"|\b(?:and|but|while|whereas)\b|[而但]"
)
TITLED = re.compile(rf"[\u4e00-\u9fff](?:{'|'.join(title for title in TITLES.split() if not title.isascii())})")
IS_NAME = re.compile(r"\b(?:it|that|this|one) (?:s|is|was) ([a-z]{3,})[ .]*$")  # for cats it is gabapentin


def is_told_of_another(said: str, marked: str, value: Sought, names: Set[str]) -> bool:
    """Whether another clause than the value's has more of the question, and a rival.

    `marked` is what is `said` with # for the value, `names` the words that have a capital there.
    """
    asked, beside_value, others = content(value.question), set[str](), list[tuple[str, set[str]]]()
    ends = [(0, 0), *(end.span() for end in CLAUSE_END.finditer(marked)), (len(said), len(said))]
    for (_, start), (end, _) in pairwise(ends):
        clause = said[start:end].strip()
        told = content(clause)
        shared = {word for word in asked if any(is_form(other, word) for other in told)}
        if "#" not in marked[start:end]:
            others.append((clause, shared))
        elif not _says_more(marked[start:end], value.question):
            return False  # the value alone, or what is asked of it
        else:
            beside_value |= shared
    return any(shared - beside_value and _has_rival(clause, value, names) for clause, shared in others)


def is_one_of_many(marked: str, value: Sought) -> bool:
    """Whether a number is told of what the question does not ask ("12 ships") and behind another one, in a clause that
    has no more of its words: who does not know tells a number of each thing."""
    known = value.explained | value.beside | {"1", *NUMBER.findall(value.question)}
    said = re.sub(rf"{DATE.pattern}|{TIME}", " ", YEAR.sub(" ", LATEST.sub(" ", LABELLED.sub(" ", marked))))
    said = without_numbers(said, frozenset(number.lstrip("-") for number in known))
    asked, most = content(value.question), -1
    for clause in CLAUSE_END.split(said):
        told = content(clause)
        shared = sum(any(is_form(other, word) for other in told) for word in asked)
        for telling in re.finditer(rf"#+|{NUMBER.pattern}", clause):
            if telling[0][0] != "#":
                most = max(most, shared)
            elif shared > most or is_counted(clause[telling.end() :], value):
                return False
    return most >= 0


def _says_more(said: str, question: str) -> bool:
    """Whether a clause has words that the question has not."""
    asked = [word for *_, word in terms(question)]
    words = [word for *_, word in terms(said) if word.isascii() and stem(word) not in COMMON]
    signs = [sign for run in HAN.findall(said) for sign in run if sign not in question and sign not in COMMON]
    return bool(signs) or not all(any(is_form(word, other) for other in asked) for word in words)


def _has_rival(clause: str, value: Sought, names: Set[str]) -> bool:
    """Whether a clause has something of the form of the value, and the question has it not."""
    if value.kind == "number":
        known = value.explained | value.beside | {"1", *NUMBER.findall(value.question)}
        return has_rival_number(without_numbers(clause, known), value)
    if value.kind == "date":
        return any(moment[0] not in value.question for moment in MOMENT.finditer(clause))
    told = [
        *(token[0] for token in tokens(clause) if token[0] in names),
        *TITLED.findall(clause),
        *IS_NAME.findall(clause),
    ]
    if any(name not in value.question and stem(name) not in COMMON for name in told):
        return True
    return any(is_unknown(run, value.question) for run in HAN.findall(clause))
