"""What stands beside quotes and is neither of a list nor a claim: a remark on the source, a wish, a verb between facts.

A clause without a fact is a remark where it names the source and says of it what one does with sources, or wishes well.
In a clause with facts a word or two of no thing, person, degree or judgement are glue. Guarantees: pure functions;
nothing that denies, doubts, permits, counts or compares. Not covered: a verb that says another thing of a fact.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from sql_agent.offline_judge.doubts import AROUND, DOUBTS, FREE, GRAMMAR, LAST, words_of
from sql_agent.offline_judge.layout import CLAIMS, COUNT, SIZES
from sql_agent.offline_judge.lexicon import Lexicon, spell, tokens
from sql_agent.offline_judge.slots import stem
from sql_agent.offline_judge.words import RELATIONS, phrases
from sql_agent.words.meanings import is_chinese_word, is_english, is_general, is_of_talk, is_person, is_plain_verb

CLAUSE_END = re.compile(r"[,;:、。.!?\n|](?!\d)")
SOURCE = re.compile(
    r"\b(?:tables?|rows?|records?|rules?|sections?|columns?|entr(?:y|ies)|leaflets?|catalogues?|labels?|sheets?|query"
    r"|clauses?|fields?|paragraphs?|guide(?:book)?s?|manuals?|pages?|articles?|chapters?|database)\b"
    r"|[表库栏行节条](?![\u4e00-\u9fff]?[格房])|条目|记录|字段|说明书|数据|资料|规定|词条"
)
WISH = re.compile(
    r"\W*(?:(?:enjoy (?:your|the)|have an? (?:good|nice|great|pleasant|lovely)|have fun|happy [a-z]+ing|bon|good luck"
    r"|play fair|stay safe|all the best|thanks?|thank you)(?![a-z])|祝|愿[您你早]|感谢|谢谢|多谢|辛苦了)"
)
THINGS = (
    "things?|cases?|situations?|points?|items?|signs?|kinds?|types?|ways?|reasons?|rules?|steps?|rows?|records?|entries"
)
COUNTED = re.compile(
    rf"({COUNT.pattern})(?: ?(?:方面|[个条点步种类行项段])[\u4e00-\u9fff]{{0,2}}| (?:[a-z]+ )?(?:{THINGS})(?![a-z]))"
)
NUMBERED = re.compile(rf"({SOURCE.pattern}) ?\d{{1,2}}(?![\d.])")
NAMED = re.compile(  # what it is a table of
    rf"(?:\b([a-z]+) |[摘取来出]自[\u4e00-\u9fff]{{0,5}})(?:{SOURCE.pattern})"
    r"|[\u4e00-\u9fff]{1,5}表(?![\u4e00-\u9fff])"
)
HAS = frozenset(map(stem, re.findall(r"\w+", "has have covers deals holds contains lists concerns applies matches")))
TELLING = Lexicon(word for _, says in RELATIONS for word in phrases(says))  # of what kind something is
LIGHT = {*FREE.split(), *phrases(GRAMMAR)}
MAX_WISH, MAX_NEW, MAX_GLUE = 7, 3, 2  # words, of two characters in Chinese


def is_remark(clause: str, asked: set[str], n_facts: int) -> bool:
    """Whether a clause without a fact, in normal form, says only what the source is or does, counts up to so many facts
    in it, or wishes well."""
    clause = COUNTED.sub(lambda one: " record " if 0 < int(SIZES.get(one[1], one[1])) <= n_facts else one[0], clause)
    clause = NAMED.sub(lambda one: one[0] if one[1] and is_general(one[1]) else " record ", NUMBERED.sub(r"\1", clause))
    if CLAIMS.search(clause) or re.search(r"\d", clause):
        return False
    if WISH.match(clause) and len(tokens(clause)) <= MAX_WISH:
        return True
    new = _new(clause, asked)
    is_of_source = all(SOURCE.fullmatch(one) or stem(one) in HAS or is_of_talk(one) for one in new)
    return SOURCE.search(clause) is not None and _size(new) <= MAX_NEW and is_of_source


def is_by_dictionary(text: str, unknown: Sequence[tuple[int, int]], known: Collection[str]) -> bool:
    """Whether all that a frame says, but words of grammar, is of dictionaries alone, and in no `known` text (spelt): a
    riddle, an old version."""
    listed = {place for start, end, _ in LAST.read(text)[0] for place in range(start, end)}
    new = {place for start, end in unknown for place in range(start, end)} - listed
    words = [(start, text[start:end]) for start, end in words_of(text)]
    said = [(start, word) for start, word in words if re.search(r"\w", word) and word not in LIGHT]
    begin = text.rfind(":", 0, next((start for start, _ in said if start in new), 0))
    said = [(start, word) for start, word in said if start > begin]
    is_new = [start in new for start, _ in said]
    return any(is_new) and all(is_new) and not any(spell(word) in one for _, word in said for one in known)


def is_glue(text: str, around: str, asked: set[str]) -> bool:
    """Whether words between facts say nothing by themselves; `around` are all those of the clause."""
    if CLAIMS.search(text) or DOUBTS.search(around) or TELLING.read(text)[0] or re.search(r"[^\w\s'.-]|\d", text):
        return False
    new = _new(text, asked)
    return _size(new) <= MAX_GLUE and all(map(_is_light, new))


def is_talk(text: str, asked: set[str]) -> bool:
    """Whether a text, beside words that are asked, has words of talk and single characters alone, and no number."""
    new = (one for one in _new(text, asked) if len(one) > 1 or one.isdecimal())
    return not CLAIMS.search(text) and all(map(is_of_talk, new))


def _new(text: str, asked: set[str]) -> list[str]:
    words = (text[start:end] for start, end in words_of(text))
    return [one for one in words if re.search(r"\w", one) and one not in AROUND and stem(one) not in asked]


def _size(words: list[str]) -> float:
    return sum(1 if one.isascii() else len(one) / 2 for one in words)


def _is_light(word: str) -> bool:
    is_word = is_english(word) if word.isascii() else is_chinese_word(word)
    return is_word and not is_person(word) and (is_of_talk(word) or is_plain_verb(word))
