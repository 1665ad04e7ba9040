"""Who answers the question when an answer tells several things: the value, or another one beside the question's words.

"Ms Keller sent it, and Mr Ives signed for it" tells another value of what is asked where a clause without the value has
words of the question that the value's own clause lacks, and something of the value's form. Guarantees: pure functions,
linear in the text. Not covered: a clause that names nothing in the form of a value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from itertools import pairwise

from sql_agent.offline_judge.doubts import TITLES
from sql_agent.offline_judge.lexicon import tokens
from sql_agent.offline_judge.slots import COMMON, HAN, content, is_form, stem, terms
from sql_agent.offline_judge.typed.asides import Asked, has_rival, without_numbers
from sql_agent.offline_judge.values import DATE, MONTH, NUMBER, TIME
from sql_agent.words.meanings import is_unknown

CLAUSE_END = re.compile(
    r"[;!?。；！？，：\n()（）]|[,:](?!\s*\d)|(?<=[^\W\d])(?<!\b[A-Z])\.(?=\s|$)|(?<=\d)\.(?=\s+[^\W\d])|\s[-–—]+\s|——"
    r"|\b(?:and|but|while|whereas)\b|[而但]"
)
MOMENT = re.compile(rf"{DATE.pattern}|{TIME}|\b(?:{MONTH})\b|\d月|(?<!\d)(?:19|20)\d\d(?!\d)")
TITLED = re.compile(rf"[\u4e00-\u9fff](?:{'|'.join(one for one in TITLES.split() if not one.isascii())})")
LETTERED = re.compile("([a-z]{1,2})([\u4e00-\u9fff]{1,3})")


def is_told_of_another(said: str, shown: str, asked: str, about: Asked, names: Set[str]) -> bool:
    """Whether another clause than the value's has more of the question, and a rival.

    `shown` is what is `said` with # for the value, `names` the words that have a capital there.
    """
    ours, beside, others = content(asked), set[str](), list[tuple[str, set[str]]]()
    ends = [(0, 0), *(end.span() for end in CLAUSE_END.finditer(shown)), (len(said), len(said))]
    for (_, start), (end, _) in pairwise(ends):
        clause = said[start:end].strip()
        shared = {one for one in ours if any(is_form(told, one) for told in content(clause))}
        if "#" not in shown[start:end]:
            others.append((clause, shared))
        elif not _says_more(shown[start:end], asked):
            return False  # the value alone, or what is asked of it
        else:
            beside |= shared
    return any(shared - beside and _has_rival(clause, asked, about, names) for clause, shared in others)


def has_other_of_series(said: str, asked: str, values: Sequence[str]) -> bool:
    """Whether beside a value as "A库" another one of the same series, as "B库", is told that is not asked for."""
    series = {found[2] for value in values if (found := LETTERED.fullmatch(value))}
    return any(
        found[0] not in values and found[0] not in asked
        for end in series
        for found in re.finditer(rf"(?<![a-z])[a-z]{{1,2}}{end}", said)
    )


def _says_more(said: str, asked: str) -> bool:
    """Whether a clause has words that the question has not."""
    ours = [one for *_, one in terms(asked)]
    words = [one for *_, one in terms(said) if one.isascii() and stem(one) not in COMMON]
    signs = [sign for run in HAN.findall(said) for sign in run if sign not in asked and sign not in COMMON]
    return bool(signs) or not all(any(is_form(one, other) for other in ours) for one in words)


def _has_rival(clause: str, asked: str, about: Asked, names: Set[str]) -> bool:
    """Whether a clause has something of the form of the value, and the question has it not."""
    if about.kind == "number":
        known = about.explained | {"1", *NUMBER.findall(asked)}
        return has_rival(without_numbers(clause, known), about)
    if about.kind == "date":
        return any(found[0] not in asked for found in MOMENT.finditer(clause))
    told = [*(one[0] for one in tokens(clause) if one[0] in names), *TITLED.findall(clause)]
    if any(one not in asked and stem(one) not in COMMON for one in told):
        return True
    return any(is_unknown(run, asked) for run in HAN.findall(clause))
