"""Near-duplicates among questions: the same with other courtesy, marks, widths, script or order, or with a slip.

Guarantees: a pure function of the texts and their order; two questions are never the same that name other numbers, of
which one denies, or that differ in a word of two characters or more. A single character may differ where that makes a
piece that stands nowhere else, as a slip of the pen does: two drugs whose names differ by one character are two.
Candidates come from a sparse product of pairs of characters, weighted by rarity, so that large files are no square.
Not covered: paraphrases. A question about a thing that no other one names, one character from the other, is a slip.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from rapidfuzz.distance import Levenshtein
from scipy.sparse import csr_matrix

from sql_agent.offline_judge.normal import normalise

# What asks or is polite and says nothing of the matter. Longer ones first.
FRAMES = (
    *(
        "麻烦(?:你|您)?",
        "请问",
        "请教",
        "你好",
        "您好",
        "劳驾",
        "谢谢(?:你|您)?",
        "多谢",
        "医生",
        "大夫",
        "我?想(?:要|问|知道|了解|请教)",
    ),
    *(
        "(?:能不能|能否|可否|可不可以)?(?:请|帮我|告诉我|给我)+",
        "(?:查|问|讲|说|介绍|看|科普)?[一1]下子?",
        "请?列出",
        "查询",
    ),
    *(
        "(?:分别|各|都)?有(?:哪些|什么|啥)",
        "(?:分别|各|都)?是(?:什么|哪些|啥)",
        "哪些",
        "什么",
        "啥",
        "到底",
        "究竟",
        "具体",
        "大概",
    ),
    *(r"\bplease\b", r"\bkindly\b", r"\bthank(?:s| you)\b", r"\b(?:hello|hi|hey)\b", r"\b(?:can|could|would) you\b"),
    *(r"\btell me\b", r"\bi(?: would|'d)? (?:like|want) to know\b", r"\bwhat(?:'s| is| are)\b", r"\b(?:the|a|an)\b"),
)
FRAME = re.compile("|".join(FRAMES))
SAME = {
    "为什么": "为何",
    "怎么样": "怎么",
    "如何": "怎么",
    "怎样": "怎么",
    "是否": "是不是",
    "能否": "能",
    "可否": "能",
}
SAME |= {"可不可以": "能", "能不能": "能", "可以": "能"}
SYNONYM = re.compile("|".join(sorted(SAME, key=len, reverse=True)))
TOKEN = re.compile(r"\d+(?:\.\d+)?|[+*/^<>=×÷]|(?<=\d)-(?=\d)|[a-zµμ°%]+|[^\W_a-z\d]")
PARTICLES = frozenset("的了呢吗么啊呀吧")
# A character that turns the sense of the word behind it: with it and without are two questions.
TURNS = frozenset("不没无勿未非禁高低前后内外左右上下男女大小急慢多少新老早晚")
DENIAL = re.compile(r"[不没无勿未]|\b(?:not|never|without)\b|n't\b")
CANDIDATE = 0.4  # of the cosine; what is less alike is not looked at
ALIKE = 0.8  # share of the tokens that must be the same
KNOWN = 2  # a pair of tokens that stands in so many questions is no slip
LONG_TOKENS = 30  # from here on words may be added, to LONG_ALIKE
LONG_ALIKE = 0.9
ROWS_AT_ONCE = 1000


@dataclass(frozen=True)
class Match:
    """Question `index` repeats question `other`; `score` is the share of the tokens that are the same."""

    index: int
    other: int
    score: float


@dataclass(frozen=True)
class Form:
    """What is compared: a question's tokens without the frame and with it, its numbers, and how often it denies."""

    tokens: tuple[str, ...]
    framed: tuple[str, ...]
    numbers: tuple[str, ...]
    denials: int


def form(text: str) -> Form:
    """The form of one question."""
    said = normalise(SYNONYM.sub(lambda m: SAME[m[0]], text.lower()))
    framed = _tokens(said)
    tokens = _tokens(FRAME.sub(" ", FRAME.sub(" ", said)))
    # 一 is a word more often than a number.
    numbers = sorted(token for token in tokens if token[0].isdigit() and token != "1")
    return Form(tokens or framed or (text,), framed, tuple(numbers), len(DENIAL.findall(said)))


def _tokens(text: str) -> tuple[str, ...]:
    return tuple(token for token in TOKEN.findall(text) if token not in PARTICLES)


def _pairs(tokens: Sequence[str]) -> list[tuple[str, str]]:
    """Neighbouring tokens; the ends count as tokens."""
    return list(pairwise(("", *tokens, "")))


def repeats(texts: Sequence[str], *, n_old: int = 0) -> Iterator[Match]:
    """For each text from `n_old` on that repeats an earlier one (one that repeats none itself), the best match."""
    dropped: set[int] = set()
    for matches in alike(texts, n_old=n_old):
        if left := [match for match in matches if match.other not in dropped]:
            best = max(left, key=lambda match: (match.score, -match.other))
            dropped.add(best.index)
            yield best


def alike(texts: Sequence[str], *, n_old: int = 0) -> Iterator[list[Match]]:
    """For each text from `n_old` on the earlier ones that it repeats; in order."""
    forms = [form(text) for text in texts]
    seen = Counter(pair for one in forms for pair in {*_pairs(one.tokens), *_pairs(one.framed)})
    for index, others in _candidates(forms, n_old):
        scores = {other: _alike(forms[index], forms[other], seen) for other in others}
        yield [Match(index, other, round(score, 4)) for other, score in scores.items() if score]


def _candidates(forms: Sequence[Form], n_old: int) -> Iterator[tuple[int, list[int]]]:
    """Each text from `n_old` on, with the earlier ones that share enough of its rare pairs of tokens."""
    matrix = _weights(forms)
    for start in range(n_old, len(forms), ROWS_AT_ONCE):
        stop = min(start + ROWS_AT_ONCE, len(forms))
        found: Any = (matrix[start:stop] @ matrix[:stop].T).tocsr()
        for row in range(stop - start):
            begin, end = found.indptr[row], found.indptr[row + 1]
            near = found.indices[begin:end][found.data[begin:end] >= CANDIDATE]
            yield start + row, sorted(int(other) for other in near if other < start + row)


def _weights(forms: Sequence[Form]) -> csr_matrix:
    """A row of length 1 for each form: its single tokens and pairs of tokens, weighted by their rarity."""
    bags = [Counter([*one.tokens, *_pairs(one.tokens)]) for one in forms]
    place = {gram: n for n, gram in enumerate(dict.fromkeys(gram for bag in bags for gram in bag))}
    rows = np.repeat(np.arange(len(bags)), [len(bag) for bag in bags])
    columns = np.array([place[gram] for bag in bags for gram in bag], dtype=np.int64)
    counts = np.array([n for bag in bags for n in bag.values()], dtype=np.float64)
    rarity = np.log((1 + len(bags)) / (1 + np.bincount(columns, minlength=len(place)))) + 1
    values = counts * rarity[columns]
    norms = np.sqrt(np.bincount(rows, values**2, minlength=len(bags)))
    return csr_matrix((values / norms[rows], (rows, columns)), shape=(len(bags), len(place)))


def _alike(new: Form, old: Form, seen: Counter[tuple[str, str]]) -> float:
    """The share of equal tokens where the two are one question, with or without its frame; else 0."""
    if new.numbers != old.numbers or new.denials != old.denials:
        return 0.0
    return max(_share(new.tokens, old.tokens, seen), _share(new.framed, old.framed, seen))


def _share(new: Sequence[str], old: Sequence[str], seen: Counter[tuple[str, str]]) -> float:
    if sorted(new) == sorted(old):
        return 1.0
    most = max(len(new), len(old))
    share = Levenshtein.normalized_similarity(new, old)
    if share < ALIKE and round((1 - share) * most) > 1:
        return 0.0
    free = share >= LONG_ALIKE and most >= LONG_TOKENS
    ops = [op for op in Levenshtein.opcodes(new, old) if op.tag != "equal"]
    return share if all(_is_slip(op, new, old, seen=seen, free=free) for op in ops) else 0.0


def _is_slip(op: Any, new: Sequence[str], old: Sequence[str], *, seen: Counter[tuple[str, str]], free: bool) -> bool:
    """Whether people write so without meaning anything else."""
    mine, theirs = new[op.src_start : op.src_end], old[op.dest_start : op.dest_end]
    if not (mine and theirs):
        return (
            free
            or (_is_stray(new, op.src_start) if mine else _is_stray(old, op.dest_start))
            and len(mine or theirs) == 1
        )
    if len(mine) > 1 or len(theirs) > 1:
        return False
    if mine[0].isascii() and theirs[0].isascii():
        return Levenshtein.distance(mine[0], theirs[0]) <= len(mine[0]) // 4
    known = [
        min(seen[pair] for pair in _pairs(of)[at : at + 2]) for of, at in ((new, op.src_start), (old, op.dest_start))
    ]
    return min(known) < KNOWN


def _is_stray(tokens: Sequence[str], at: int) -> bool:
    """Whether the token may be there by a slip: a twin of its neighbour, or a character that is no turn of the next."""
    twin = tokens[at] in (*tokens[max(0, at - 1) : at], *tokens[at + 1 : at + 2])
    return twin or not (tokens[at] in TURNS or tokens[at].isascii())
