"""Sentences in a language that nobody here reads: what they say of a value may be anything.

Guarantees: pure functions, linear in the text. Not covered: a foreign word or two, and one that English has too.
"""

from __future__ import annotations

import re

from sql_agent.offline_judge.doubts import FREE, TALK, TITLES
from sql_agent.offline_judge.units import UNITS
from sql_agent.offline_judge.values import MONTHS, plain, unaccented
from sql_agent.offline_judge.words import PHRASES, phrases
from sql_agent.words.meanings import is_english

SENTENCE_END = re.compile(r"(?<!\b(?:Mr|Ms|Dr|St))[.!](?=\s)|[;:。！；：\n]")
LETTERS = re.compile(r"[^\W\d_\u3400-\u9fff]{2,}")
PLAIN_WORD = re.compile(  # no name, no part of an address or of a column's name
    r"(?<![A-Za-z_.@/&=#])(?<!\d-)(?!(?<=\d)[a-z])"
    r"((?:(?![A-Z〇\u3400-\u9fff])[^\W\d_]){2,}|(?<![^\W\d_] )[A-Z][a-z]+(?! [A-Z]))(?![A-Za-z\d_@/]|\.\w|-\d)"
)
WORDS = {*LETTERS.findall(" ".join([FREE, TITLES, *phrases(f"{TALK} {PHRASES}"), *MONTHS, *UNITS]))}
LEAST = 2  # foreign words of a sentence, and a third of them


def is_foreign(answer: str, known: str) -> bool:
    """Whether a sentence of an answer is in another language than English, Chinese and that of what is `known`."""
    ours = {*LETTERS.findall(plain(known))}
    if 2 * sum(map(is_english, ours)) < len(ours):  # a question in another language
        return False
    for sentence in SENTENCE_END.split(re.sub(r"n['’]t\b|<[^<>]*>", " ", unaccented(answer))):
        words = [word for one in PLAIN_WORD.findall(sentence) if (word := one.lower()) not in ours]
        strange = sum(not (word in WORDS or is_english(word)) for word in words)
        if strange >= LEAST and 3 * strange >= len(words):
            return True
    return False
