"""Sentences in general: their clauses, the words that any may have at no cost, and what a text speaks of without these.

Guarantees: pure functions, linear in the text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from sql_agent.offline_judge.doubts import FREE, TALK, TITLES
from sql_agent.offline_judge.lexicon import Lexicon, tokens
from sql_agent.offline_judge.sections import parts
from sql_agent.offline_judge.slots import stem
from sql_agent.offline_judge.words import PHRASES, phrases

CLAUSE_END = re.compile(r"(?<!\d)[,:]|[,:](?!\d)|[;。!?\n、|()—–/→>]|(?<!\d)\.|\.(?!\d)| - |--")
VERB = re.compile(r"\b(?:is|are|was|were|did|does|has|had|came|won)\b")
AUXILIARIES = {*map(stem, re.findall(r"\w+", "is are was were do does did has have had can could will would should"))}
GRAMMAR = {stem(token[0]) for token in tokens(f"{FREE} {TITLES}")} | AUXILIARIES | {"not", "no"}
COMMON = [*f"{FREE} {TITLES}".split(), *phrases(f"{TALK} {PHRASES}")]  # of frames and courtesy
FRAME = Lexicon(COMMON)
PHRASE_BLANKS = 3  # more are in the spelling of a phrase of three words or more


@functools.lru_cache(maxsize=1024)
def lexicon_of(question: str) -> Lexicon:
    """What a clause may say beside a truth: the words of any sentence, and what the question says."""
    return Lexicon([*COMMON, *parts(question), *(token[0] for token in tokens(question))])


def clauses_of(text: str) -> list[str]:
    return [clause for clause in map(str.strip, CLAUSE_END.split(text)) if clause]


def content_of(text: str) -> set[str]:
    """The stems of what a text speaks of, without the words of any sentence."""
    return {stem(token[0]) for token in tokens(text)} - GRAMMAR


def weight(text: str) -> float:
    """How many words: a Chinese character is half a one."""
    return sum(0.5 if "\u4e00" <= token[0][0] <= "\u9fff" else 1 for token in tokens(text))


def overwritten(text: str, spans: Sequence[tuple[int, int] | tuple[int, int, str]], sign: str = " ") -> str:
    """The text with these spans written over."""
    chars = list(text)
    for start, end, *_ in spans:
        chars[start:end] = sign * (end - start)
    return "".join(chars)


def is_phrase(spelling: str) -> bool:
    """Whether words of a frame are a phrase, which says nothing whatever its words say: "if you need anything else"."""
    return spelling.count(" ") > PHRASE_BLANKS
