"""A yes or a no that a query's cells tell without a flag: by a count, a status ("paid") or two compared numbers.

A count above 0 is yes where the question compares no amounts (2 shots: "has it had its shots?"). A status is yes where
the question says it ("has it paid?"), and no where it is the opposite of a word of the question, or denies one. Two
numbers of a row tell which is more where the question names a column on each side of its comparison. Guarantees: pure
functions on text in the normal form, linear in it. Not covered: what the question says as what a thing is and not as
what is asked ("is the open order here?"), which is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sql_agent.offline_judge.lexicon import spell, tokens
from sql_agent.offline_judge.slots import COMPARES, stem
from sql_agent.offline_judge.typed.columns import place_of
from sql_agent.offline_judge.values import NUMBER
from sql_agent.words.meanings import in_chinese, is_opposite

OFFERS_TWO = re.compile(r"\bor\b|还是|或")
DESCRIBES = re.compile(r"\b(?:an?|the|this|that|every|any|all) $")  # before a word that asks nothing
MORE = re.compile(r"\b(?:more|greater|higher|larger|bigger|longer|older|taller|heavier|later)\b|[多高大长久重晚贵]")
AMOUNTS = re.compile(  # that are compared with a count
    rf"{COMPARES.pattern}|\b(?:over|above|under|below|exceed\w*|reach\w*|at (?:least|most)|up to)\b"
    r"|[多少高低大小长短早晚]于|不[到足]|达到|至[少多]|以[上下]"
)
LESS = re.compile(r"\b(?:fewer|less|lower|smaller|shorter|younger|lighter|earlier|cheaper)\b|[少低小短轻早便宜]")


def verdict_of_cells(question: str, texts: Sequence[str], columns: Sequence[str]) -> bool | None:
    """What the cells of one row say to a question of yes or no; None where that is not known."""
    if OFFERS_TWO.search(question):
        return None
    if len(texts) == 1:
        is_count = texts[0].isdecimal() and not AMOUNTS.search(question)
        return True if is_count and int(texts[0]) > 1 else _of_status(question, texts[0].replace("_", " "))
    is_compared = len(texts) == len({*columns}) == 2 and all(map(NUMBER.fullmatch, texts))
    return _of_two_numbers(question, *map(float, texts), columns=columns) if is_compared else None


def _of_status(question: str, status: str) -> bool | None:
    if re.search(r"\d", status):
        return None
    if _asks(question, status):
        return True
    words = [token[0] for token in tokens(question)]
    return False if any(is_opposite(word, status) and _asks(question, word) for word in words) else None


def _asks(question: str, status: str) -> bool:
    """Whether a status is in the question, its words in any form, and describes no thing there."""
    if not status.isascii():
        at = question.find(status)
        return at >= 0 and len(status) > 1 and question[at + len(status) : at + len(status) + 1] != "的"
    if not question.isascii():
        return any(_asks(question, chinese) for chinese in in_chinese(status))
    asked, words = tokens(question), [stem(token[0]) for token in tokens(status)]
    stems = [stem(token[0]) for token in asked]
    found = [asked[n].start() for n in range(len(stems)) if words and stems[n : n + len(words)] == words]
    return bool(found) and not any(DESCRIBES.search(question[:at]) for at in found)


def _of_two_numbers(question: str, one: float, other: float, *, columns: Sequence[str]) -> bool | None:
    sides = COMPARES.split(question)
    if len(sides) != 2:
        return None
    is_in_first, is_in_second = ([place_of(column, side) >= 0 for column in columns] for side in sides)
    degree = sides[0] if spell(question).isascii() else sides[1]
    is_more, is_less = MORE.search(degree) is not None, LESS.search(degree) is not None
    if {*is_in_first} != {True, False} or [not here for here in is_in_first] != is_in_second or is_more is is_less:
        return None
    first, second = (one, other) if is_in_first[0] else (other, one)
    return first > second if is_more else first < second
