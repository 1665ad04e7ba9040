"""Names in a raw answer, by their capitals. Guarantees: pure functions, linear in the text. Chinese has none."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sql_agent.offline_judge.doubts import FREE, TALK, TITLES
from sql_agent.offline_judge.lexicon import spell
from sql_agent.offline_judge.typed.forms import DAYS, SHORT_DAYS
from sql_agent.offline_judge.typed.sentences import COMMON
from sql_agent.offline_judge.values import ABBREVIATED, MONTHS, plain
from sql_agent.words.meanings import n_senses

LETTER = r"[^\W\u4e00-\u9fff]"  # of no Chinese word, or a digit
WORD_WITHIN = re.compile(  # a line or sentence
    rf"(?<![.!?:–—|>-] )(?<!^)(?<![\n\"“*>(])(?<!{LETTER})(?![\d_]){LETTER}+"
)
PAIR = re.compile(rf"(?<!{LETTER})([A-Z](?:{LETTER}|-)*) (?=([A-Z](?:{LETTER}|-)*))")
MANY_UNKNOWN = 3
FUNCTION_WORDS = """
across against already although among anybody anyone anything because beside cannot could didn doesn during either else
elsewhere everybody everyone hers herself himself into itself myself nowhere onto ours ourselves shall should since
something theirs themselves thereafter thereby though toward towards unless until upon whenever whereby wherein wherever
whether whoever whom whose without would yours yourself
"""  # that WordNet does not have
UNCASED = re.compile(rf"(?<!{LETTER})(?:[a-z]{{4,}}|[A-Z]{{4,}})(?!{LETTER}|_)")
QUOTED = re.compile(r"(?<=[\w,\"”] )[\"“]([^\"“”.!?:\n]{1,40})[\"”]")  # of a sentence, no sentence itself
CAPITALISED = re.compile(r"\b[A-Z][\w-]*")
PARTICIPLE = re.compile(  # that opens a sentence: Sorting by ...
    r"(?:^|(?<=[.!?:\n] ))[A-Z][a-z]{2,20}ing (?=(?:the|an?|all|by|on|for|its|their|each|every|only|\d+)\b)", re.M
)
NO_NAMES = {*DAYS, *(f"{day}s" for day in DAYS), *SHORT_DAYS, *MONTHS, *(month[:3] for month in MONTHS)}
NO_NAMES |= {"sept", "sql", "the", "celsius", "fahrenheit"}
COURTEOUS = {*map(spell, COMMON)}


def capitalised(text: str) -> set[str]:
    """The words with a capital that are no words of courtesy and have no digit."""
    words = [spell(plain(word)) for word in CAPITALISED.findall(PARTICIPLE.sub(" ", text))]
    return {word.strip() for word in words if word not in COURTEOUS and not re.search(r"\d", word)}


def has_strange_name(answer: str, question: str, known: Sequence[str]) -> bool:
    """Whether a capitalised word inside a sentence is neither in the question nor in what the query found; or one at
    its beginning, before a later word of a value: Pine Table for Oak Table."""
    familiar = {*re.findall(f"{LETTER}+", f"{question} {' '.join(known)} {FREE} {TITLES}"), *NO_NAMES, *TALK.split()}
    familiar.update(*(spell(text).split() for text in known))
    later_words = {word for text in known for word in spell(text).split()[1:]}
    answer = QUOTED.sub(r"\1", re.sub(r"[*_`]|(?<=\w)['’](?=[A-Z])", "", answer))
    answer = ABBREVIATED.sub(r"\1 ", answer)
    words = [word for word in WORD_WITHIN.findall(answer) if word[0].isupper() and not word.rstrip("s").isupper()]
    words += [word for word, behind in PAIR.findall(answer) if spell(plain(behind)).strip() in later_words]
    return any(not {one, one.removesuffix("s")} & familiar for word in words for one in spell(plain(word)).split())


def has_uncased_names(answer: str, question: str, values: Sequence[str], known: Sequence[str]) -> bool:
    """Whether words that no dictionary has stand in an answer without the capitals of names: many, or one where it
    writes the value so too ("ines okafor with anna pohl")."""
    familiar = {*spell(question).split(), *FUNCTION_WORDS.split(), *map(str.strip, COURTEOUS)}.union(
        *(spell(plain(text)).split() for text in known)
    )
    words = {plain(word).strip() for word in UNCASED.findall(answer)}
    unknown = {word for word in words - familiar if not n_senses(word)}
    names = [{*value.split()} for value in values if " " in value and not all(map(n_senses, value.split()))]
    is_uncased = any(name <= words for name in names)
    return len(unknown) >= (1 if is_uncased else MANY_UNKNOWN)
