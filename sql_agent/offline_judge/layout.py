"""What is said around facts and claims nothing: joints between them, how many there are, captions and labels of the
answer's own.

A caption stands at the head of a table, before its rows or before a colon, and one of several alike: made of words of
dictionaries that are no persons, it orders what is quoted. Guarantees: pure functions, linear in the text; nothing that
denies, doubts, permits or counts anything else is layout. Not covered: a caption that is another thing's name.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from sql_agent.offline_judge.doubts import DENIALS, DOUBTS, FREE, LONGEST, PERMITS
from sql_agent.offline_judge.echoes import JUDGING
from sql_agent.offline_judge.lexicon import tokens
from sql_agent.offline_judge.slots import is_form
from sql_agent.offline_judge.words import phrases
from sql_agent.words.meanings import is_chinese_word, is_english, is_measure, is_person

JOINTS_EN = """then next finally lastly afterwards thereafter subsequently meanwhile both plus note that whose where which
who you your or"""
JOINTS_ZH = "用 应 应该 须 需 需要 见 再 然后 最后 从 到 于 系 由 将 把 在 有 还 就 以 之 与 给 对 其 着 者 这 该 此 各 每"
HEAD = re.compile(r"^\|?(?P<head>[^\n]*)\n\|?[ :]*-{2,}[-:| ]*$", re.MULTILINE)  # a table's first line
LABEL = re.compile(r"(?:^|(?<=[\n|;。]))(?P<label>[^\n|:;。]{1,40})(?=[:|])")
SIZES = {word: str(n) for n, word in enumerate("one two three four five six seven eight nine ten".split(), 1)}
PLACE = re.compile(r"\d{1,2}")  # of a row
MAX_WORDS, MAX_HAN = 4, 8
ALIKE = 2  # labels at least
JOINTS = {word for word in FREE.split() if word.isalpha()} | {*JOINTS_EN.split()}
JOINTS = {word for word in JOINTS if not DENIALS.search(word)} - PERMITS - {"all", "total", "how", "many", "much"}
JOINTS |= {*phrases(JOINTS_ZH)}


def is_joint(piece: str, sizes: Collection[str], question: str) -> bool:
    """Whether a piece between facts only joins them, says the question's words in another form, or counts the facts:
    `sizes` are how many there are."""
    asked = [word for word in question.split() if word.isalpha() and len(word) > 2]
    words = [token[0] for token in tokens(piece)]
    counts = [n for n, word in enumerate(words) if SIZES.get(word, word) in sizes][:1]
    measures = [n + 1 for n in counts if n + 1 < len(words) and is_measure(words[n + 1])]
    words = [word for n, word in enumerate(words) if n not in {*counts, *measures}]
    return all(word in JOINTS or _is_of(word, asked) for word in words)


def _is_of(word: str, asked: list[str]) -> bool:
    """Whether an English word is a form of one of the question's, and denies nothing."""
    return word.isalpha() and word.isascii() and len(word) > 2 and any(is_form(word, other) for other in asked)


def captions(text: str) -> list[tuple[int, int]]:
    """Where the captions of a text in normal form are: cells of the heads of tables, and labels where several are."""
    heads = [found.span("head") for found in HEAD.finditer(text)]
    labels = [found.span("label") for found in LABEL.finditer(text)]
    return heads + (labels if len(labels) >= ALIKE else [])


def is_caption(piece: str) -> bool:
    """Whether a piece of a caption is made of words that dictionaries know, and of no person."""
    if PLACE.fullmatch(piece):
        return True
    if JUDGING.search(piece) or DENIALS.search(piece) or DOUBTS.search(piece) or re.search(r"\d", piece):
        return False
    words = [*re.findall("[a-z]+", piece)]
    han = re.findall("[\u4e00-\u9fff]+", piece)
    if len(words) > MAX_WORDS or sum(map(len, han)) > MAX_HAN:
        return False
    return all(is_english(word) and not is_person(word) for word in words) and all(map(_is_of_words, han))


def _is_of_words(run: str) -> bool:
    """Whether a Chinese run is words of a dictionary, the longest ones from the left, and no person."""
    while run:
        size = next((n for n in range(min(LONGEST, len(run)), 1, -1) if is_chinese_word(run[:n])), 1)
        if is_person(run[:size]):
            return False
        run = run[size:]
    return True
