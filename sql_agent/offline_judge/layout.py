"""What is said around facts and claims nothing: joints between them, how many there are, captions and labels of the
answer's own.

A caption stands at the head of a table, before its rows or before a colon, and one of several alike: made of words of
dictionaries that are no persons, it orders what is quoted. Guarantees: pure functions, linear in the text; nothing that
denies, doubts, permits or counts anything else is layout. Not covered: a caption that is another thing's name.
"""

from __future__ import annotations

import re
from collections import Counter

from sql_agent.offline_judge.doubts import DENIALS, DOUBTS, FREE, HEARSAY, LONGEST, PERMITS
from sql_agent.offline_judge.echoes import JUDGING
from sql_agent.offline_judge.lexicon import Lexicon, tokens
from sql_agent.offline_judge.slots import is_form
from sql_agent.offline_judge.verdicts import DENIES, STOPS
from sql_agent.offline_judge.words import phrases
from sql_agent.words.meanings import is_chinese_word, is_english, is_person

JOINTS_EN = """then next finally lastly afterwards thereafter subsequently meanwhile both plus note that whose where
which who you your or but"""
JOINTS_ZH = """但 但是 应 应该 须 需 需要 见 再 然后 最后 从 到 于 系 由 将 把 在 有 还 就 以 之 与 给 对 其 着 者 这
该 此 各 每 时 如果 若 当"""
CLAIMS = re.compile(
    rf"{JUDGING.pattern}|{DENIALS.pattern}|{DOUBTS.pattern}|{HEARSAY.pattern}|{DENIES.pattern}|{STOPS.pattern}"
)
HEAD = re.compile(r"^\|?(?P<head>[^\n]*)\n\|?[ :]*-[-:| ]*$", re.MULTILINE)  # a table's first line
CELL = re.compile(r"[^|\n]+")
LABEL = re.compile(  # of a line or a row, or before a colon
    r"(?:^|(?<=\n))\|?(?P<of_line>[^\n|:;。·—–]{1,40})(?=[:·—–]\s*[^\s|]|\| *[^\s|]|\n[^\n|])"
    r"|(?<=[;。])(?P<label>[^\n|:;。]{1,40})(?=:\s*\S)"
)
NUMBERS = "one two three four five six seven eight nine ten"
SIZES = {word: str(n) for n, word in enumerate(NUMBERS.split(), 1)}
PLACE = re.compile(r"\d{1,2}")  # of a row
COUNT = re.compile(rf"\d{{1,2}}|{'|'.join(SIZES)}")
COUNTING = frozenset("个种类项条点步部大方段组款样处件份位名句档")  # what is counted, and nothing that is measured
MAX_WORDS, MAX_HAN = 3, 5
ALIKE = 2  # labels at least
OPEN = re.compile(r"(.)[不没]\1|[能是可]否|有无|\bwhether\b")  # asks, and says nothing
JOINTS = Lexicon(
    {word for word in {*FREE.split(), *JOINTS_EN.split()} if word.isalpha() and not DENIALS.search(word)}
    - {*PERMITS, *["all", "total", "how", "many", "much", "percent", "dollars", "euros", "pounds"]}
    | {*phrases(JOINTS_ZH)}
)


def is_joint(piece: str, behind: str, n_facts: int, question: str) -> bool:
    """Whether a piece between facts joins them in words of grammar, says the question's words in
    another form, or counts up to `n_facts` of something."""
    asked = [word for word in dict.fromkeys(question.split()) if word.isalpha() and len(word) > 2]
    if COUNT.fullmatch(piece):
        return _is_count(piece, behind, n_facts, asked)
    return all(_is_joint(piece[start:end], n_facts, asked) for start, end in JOINTS.read(piece)[1])


def _is_joint(run: str, n_facts: int, asked: list[str]) -> bool:
    words = [token[0] for token in tokens(run)]
    if COUNT.fullmatch(words[0]):
        return len(words) == 2 and _is_count(words[0], words[1], n_facts, asked)
    return all(_is_of(word, asked) for word in words)


def _is_count(number: str, behind: str, n_facts: int, asked: list[str]) -> bool:
    """Whether a number counts facts: before a Chinese measure word or what is asked for, or at a label's end."""
    count = int(SIZES.get(number, number))
    following = re.match(r"[ )、]*(?:(:)|([a-z]+)|([\u4e00-\u9fff]))", behind)
    if not 0 < count <= n_facts or not following:
        return False
    sign, word, char = following.groups()
    return bool(sign) or (word is not None and _is_of(word, asked)) or (char is not None and char in COUNTING)


def _is_of(word: str, asked: list[str]) -> bool:
    """Whether an English word is a form of one of the question's, and denies nothing."""
    return word.isalpha() and word.isascii() and len(word) > 2 and any(is_form(word, other) for other in asked)


def captions(text: str, n_things: int) -> list[tuple[int, int, bool]]:
    """Where the captions of a text in normal form are, and which are in a table's head of several cells; of labels, in
    lines of their own and others, those that stand once among several, or once for each of `n_things`. The first line
    is a title, and no caption."""
    heads = [[*CELL.finditer(text, *head.span("head"))] for head in HEAD.finditer(text)]
    labels = [found.span("of_line" if found["of_line"] else "label") for found in LABEL.finditer(text)]
    labels = [(start, end) for start, end in labels if text[start:end].strip("- ") and (start or text[end] != "\n")]
    times = Counter(text[start:end].strip() for start, end in labels)
    once = [(start, end) for start, end in labels if times[text[start:end].strip()] in (1, n_things)]
    alike = Counter(is_line for is_line, _ in {(text[end] == "\n", text[start:end].strip()) for start, end in once})
    cells = [(*cell.span(), True) for head in heads if len(head) >= ALIKE for cell in head]
    return cells + [(start, end, False) for start, end in once if alike[text[end] == "\n"] >= ALIKE]


def is_caption(label: str) -> bool:
    """Whether a caption is a number, or a few words that dictionaries know, and no person."""
    if PLACE.fullmatch(label):
        return True
    label = OPEN.sub("", label)
    words, han = re.findall("[a-z]+", label), re.findall("[\u4e00-\u9fff]+", label)
    if CLAIMS.search(label) or re.search(r"\d", label) or len(words) > MAX_WORDS or sum(map(len, han)) > MAX_HAN:
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
