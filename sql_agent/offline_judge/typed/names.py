"""Names in a raw answer, by their capitals. Guarantees: pure functions, linear in the text. Chinese has none."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sql_agent.offline_judge.doubts import FREE, TALK, TITLES
from sql_agent.offline_judge.lexicon import spell
from sql_agent.offline_judge.typed.forms import DAYS, SHORT_DAYS
from sql_agent.offline_judge.typed.sentences import COMMON
from sql_agent.offline_judge.typed.truths import Truth
from sql_agent.offline_judge.values import ABBREVIATED, MONTHS, plain
from sql_agent.words.meanings import is_english, is_general

LETTER = r"[^\W\u4e00-\u9fff]"  # of no Chinese word, or a digit
WORD_WITHIN = re.compile(  # a line or sentence
    rf"(?<![.!?:–—|>#-] )(?<!^)(?<![\n\"“*>(])(?<!{LETTER})(?![\d_]){LETTER}+"
)
PAIR = re.compile(rf"(?<!{LETTER})([A-Z](?:{LETTER}|-)*) (?=([A-Z](?:{LETTER}|-)*))")
UNCASED = re.compile(rf"(?<!{LETTER})(?:[a-z]{{4,}}|[A-Z]{{4,}})(?!{LETTER}|_)")
ADJECTIVE = re.compile(r"\b[A-Z]\w+(?: [A-Z]\w+)*(?= [a-z]{3,})")  # that qualifies what is no name: Swiss francs
QUOTED = re.compile(r"(?<=[\w,\"”] )[\"“]([^\"“”.!?:\n]{1,40})[\"”]")  # of a sentence, no sentence itself
CAPITALISED = re.compile(r"\b[A-Z][\w-]*")
PARTICIPLE = re.compile(  # that opens a sentence: Sorting by ...
    r"(?:^|(?<=[.!?:\n] ))[A-Z][a-z]{2,}ing +(?=(?:the|an?|all|by|on|for|its|their|each|every|only|per|\d+)\b)", re.M
)
OF_OTHERS = re.compile(r"\b((?:in|at|of|from|on|for|under|after|before) (?:the |an? )?)(?:[A-Z][\w'’-]*[ ,]{0,2}){1,5}")
NO_NAMES = {*DAYS, *(f"{day}s" for day in DAYS), *SHORT_DAYS, *MONTHS, *(month[:3] for month in MONTHS)}
NO_NAMES |= {"sept", "sql", "the", "celsius", "fahrenheit"}
COURTEOUS = {*map(spell, COMMON)}


def capitalised(text: str) -> set[str]:
    """The words with a capital that are no words of courtesy and have no digit."""
    words = [spell(plain(word)) for word in CAPITALISED.findall(PARTICIPLE.sub(" ", text))]
    return {word.strip() for word in words if word not in COURTEOUS and not re.search(r"\d", word)}


def has_strange_name(answer: str, question: str, known: Sequence[str], *, is_bound: bool) -> bool:
    """Whether a capitalised word inside a sentence is neither in the question nor in what the query found; or one at
    its beginning, before a later word of a value: Pine Table for Oak Table. If it `is_bound` to these names, also
    behind a preposition, as a place."""
    familiar = {*re.findall(f"{LETTER}+", f"{question} {' '.join(known)} {FREE} {TITLES}"), *NO_NAMES, *TALK.split()}
    familiar.update(*(spell(text).split() for text in known))
    later_words = {word for text in known for word in spell(text).split()[1:]}
    answer = QUOTED.sub(r"\1", re.sub(r"[*_`]|(?<=\w)['’](?=[A-Z])", "", answer))
    answer = ADJECTIVE.sub(lambda word: word[0].lower() if is_general(word[0].lower()) else word[0], answer)
    answer = ABBREVIATED.sub(r"\1 ", answer)
    answer = answer if is_bound else OF_OTHERS.sub(r"\1", answer)
    words = [word for word in WORD_WITHIN.findall(answer) if word[0].isupper() and sum(map(str.isupper, word)) == 1]
    words += [word for word, behind in PAIR.findall(answer) if spell(plain(behind)).strip() in later_words]
    return any(not {one, one.removesuffix("s")} & familiar for word in words for one in spell(plain(word)).split())


def has_uncased_name(answer: str, question: str, truth: Truth) -> bool:
    """Whether words that no dictionary has stand beside a name that is written without capitals, or in them alone."""
    words = {plain(word).strip() for word in UNCASED.findall(answer)}
    names = [{*value.split()} for value in truth.values if " " in value and not all(map(is_english, value.split()))]
    familiar = {*spell(question).split(), *spell(" ".join(truth.known)).split()}
    return any(name <= words for name in names) and not all(map(is_english, words - familiar))
