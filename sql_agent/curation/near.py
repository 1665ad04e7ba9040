"""Near-duplicates among questions: the same with other words for it, courtesy, marks, script or order, or with a slip.

Guarantees: a pure function of the texts and their order; two questions are never the same that name other numbers,
other drugs or diseases of words.txt, or of which one denies. Other words differ, unless words.txt has them as one
(wording.py) or one is a slip: an English word that no dictionary and no second question has, one or two letters from
the other; a Chinese character that makes a piece that stands nowhere else. Candidates come from a sparse product of
rare words and pairs of words, so that large files are no square. Not covered: paraphrases. A name that no other
question and no list has, one letter from the other, is a slip.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from rapidfuzz.distance import OSA, Levenshtein
from scipy.sparse import csr_matrix

from sql_agent.curation.wording import DENIED, Wording, groups, is_listed, is_word, wording

# A character that turns the sense of the word behind it: with it and without are two questions.
TURNS = frozenset("不没无勿未非禁高低前后内外左右上下男女大小急慢多少新老早晚")
# What follows these is what they speak of: "A before B" is not "B before A".
DIRECTED = frozenset(f"{DENIED} than before after from into instead minus divided subtract 比 减 除 转".split())
CAUSED = "cause"  # what follows stays on its side
CANDIDATE = 0.25  # of the cosine; what is less alike is not looked at
ALIKE = 0.8  # share of the tokens that must be the same
KNOWN = 2  # what stands in so many questions is no slip,
RARE = 0.1  # unless what it may be a slip of stands in so many times more
KNOWN_PIECE = 4  # so is a character more or less
LONG_TOKENS = 30  # from here on words may be added, to LONG_ALIKE
LONG_ALIKE = 0.9
ACRONYM = range(2, 7)
ROWS_AT_ONCE = 1000

Seen = Counter[str | tuple[str, str]]


@dataclass(frozen=True)
class Match:
    """Question `index` repeats question `other`; `score` is the share of the tokens that are the same."""

    index: int
    other: int
    score: float


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
    forms = [wording(text) for text in texts]
    seen: Seen = Counter()
    for one in forms:
        seen.update({*_pairs(one.plain), *_pairs(one.framed), *one.words, *one.framed})
    for index, others in _candidates(forms, n_old):
        scores = {other: _alike(forms[index], forms[other], seen) for other in others}
        yield [Match(index, other, round(score, 4)) for other, score in scores.items() if score]


def _candidates(forms: Sequence[Wording], n_old: int) -> Iterator[tuple[int, list[int]]]:
    """Each text from `n_old` on, with the earlier ones that have its numbers and share enough of its rare words and
    pairs of tokens."""
    matrix = _weights(forms)
    known: dict[tuple[str, ...], int] = {}
    numbers = np.array([known.setdefault(one.numbers, len(known)) for one in forms])
    for start in range(n_old, len(forms), ROWS_AT_ONCE):
        stop = min(start + ROWS_AT_ONCE, len(forms))
        found: Any = (matrix[start:stop] @ matrix[:stop].T).tocsr()
        for row in range(stop - start):
            begin, end = found.indptr[row], found.indptr[row + 1]
            near = found.indices[begin:end][found.data[begin:end] >= CANDIDATE]
            near = near[(near < start + row) & (numbers[near] == numbers[start + row])]
            yield start + row, sorted(near.tolist())


def _weights(forms: Sequence[Wording]) -> csr_matrix:
    """A row of length 1 for each form: its words, and pairs of tokens, weighted by their rarity."""
    bags = [Counter([*one.words, *_ends(one), *_pairs(one.plain)]) for one in forms]
    place = {gram: n for n, gram in enumerate(dict.fromkeys(gram for bag in bags for gram in bag))}
    rows = np.repeat(np.arange(len(bags)), [len(bag) for bag in bags])
    columns = np.array([place[gram] for bag in bags for gram in bag], dtype=np.int64)
    counts = np.array([n for bag in bags for n in bag.values()], dtype=np.float64)
    rarity = np.log((1 + len(bags)) / (1 + np.bincount(columns, minlength=len(place)))) + 1
    values = counts * rarity[columns]
    norms = np.sqrt(np.bincount(rows, values**2, minlength=len(bags)))
    return csr_matrix((values / norms[rows], (rows, columns)), shape=(len(bags), len(place)))


def _ends(form: Wording) -> Iterator[str]:
    """How the long Latin words begin and end: one of them survives a slip."""
    for word in form.words:
        if word.isascii() and len(word) > 4:
            yield from (f"{word[:3]}-", f"-{word[-3:]}")


def _alike(new: Wording, old: Wording, seen: Seen) -> float:
    """The share of equal tokens where the two, of the same numbers, are one question, by words or by tokens; else 0."""
    if new.denials[0] != old.denials[0] and new.denials[1] != old.denials[1] or _name_others(new, old):
        return 0.0
    if any(mine == theirs for mine, theirs in zip(new.joined, old.joined, strict=True)) or _turned(new, old):
        return 1.0
    return max(
        _reordered(new, old, seen), *(_share(*view, seen=seen) for view in zip(new.views, old.views, strict=True))
    )


def _name_others(new: Wording, old: Wording) -> bool:
    """Whether each names a drug or disease that the other does not, none of them a piece of one with a slip in it."""
    mine, theirs = new.names.keys() - old.names.keys(), old.names.keys() - new.names.keys()
    if not (mine and theirs):
        return False
    pieces = all(
        any(new.names[one] in old.names[other] or old.names[other] in new.names[one] for other in theirs)
        for one in mine
    )
    return not pieces or new.rest == old.rest


def _turned(new: Wording, old: Wording) -> bool:
    pairs = zip(new.ordered, old.ordered, new.views, old.views, strict=True)
    return any(mine == theirs and _same_way(*views) for mine, theirs, *views in pairs)


def _reordered(new: Wording, old: Wording, seen: Seen) -> float:
    """The share where one is the other in another order, with a slip in few of its words, or with an acronym."""
    most = max(len(new.words), len(old.words))
    if len(new.bag ^ old.bag) > max(1 + ACRONYM[-1], most // 2) or not _same_way(new.words, old.words):
        return 0.0
    mine, theirs = _less(new.words, old.words), _less(old.words, new.words)
    if _is_acronym(mine, theirs) or _is_acronym(theirs, mine):
        return LONG_ALIKE
    if len(new.words) != len(old.words) or len(mine) != len(theirs) or len(mine) > max(1, most // 5):
        return 0.0
    kin = groups()[2]
    slips = all(any((one, other) in kin or _is_misspelt(one, other, seen) for other in theirs) for one in mine)
    return 1 - len(mine) / most if slips else 0.0


def _less(words: Sequence[str], others: Sequence[str]) -> list[str]:
    """The words without the others, each as often as it stands there, in order."""
    left = Counter(words) - Counter(others)
    return [word for word in words if word in left]


def _same_way(new: Sequence[str], old: Sequence[str]) -> bool:
    """Whether numbers have their units, and words with a direction what they are said of, in both."""
    for one in {*new} & {*old}:
        mine, theirs = _after(one, new), _after(one, old)
        if one[:1].isdigit() and mine != theirs or one in DIRECTED and all(mine + theirs) and mine != theirs:
            return False
        if one == CAUSED and {*mine} & {*old[: old.index(one)]} - {*theirs}:
            return False
    return True


def _after(word: str, words: Sequence[str]) -> list[str]:
    """What follows each of a word's places: a word, or two characters of Chinese."""
    ends = [words[at + 1 : at + 2 + (not "".join(words[at + 1 : at + 2]).isascii())] for at in _places(word, words)]
    return sorted("".join(end) for end in ends)


def _places(word: str, words: Sequence[str]) -> list[int]:
    return [at for at, one in enumerate(words) if one == word]


def _is_acronym(short: Sequence[str], words: Sequence[str]) -> bool:
    if len(short) != 1 or len(short[0]) not in ACRONYM or not short[0].isascii() or is_word(short[0]):
        return False
    return "".join(word[0] for word in words) == short[0]


def _share(new: Sequence[str], old: Sequence[str], *, seen: Seen) -> float:
    """The share of tokens that stand in both in one order, where the others are slips."""
    most = max(len(new), len(old))
    if Levenshtein.distance(new, old, score_cutoff=2 + most // 5) > 2 + most // 5:
        return 0.0
    new = _turned_back(new, old)
    share = Levenshtein.normalized_similarity(new, old)
    if share < ALIKE and round((1 - share) * most) > 1:
        return 0.0
    free = share >= LONG_ALIKE and most >= LONG_TOKENS
    ops = [op for op in Levenshtein.opcodes(new, old) if op.tag != "equal"]
    if not free and any((a.src_end, a.dest_end) == (b.src_start, b.dest_start) for a, b in pairwise(ops)):
        return 0.0  # a word, not a character
    return share if all(_is_slip(op, new, old, seen=seen, free=free) for op in ops) else 0.0


def _turned_back(new: Sequence[str], old: Sequence[str]) -> Sequence[str]:
    """The tokens with the first two that stand the other way round there turned back."""
    at = next((at for at, (mine, theirs) in enumerate(zip(new, old, strict=False)) if mine != theirs), len(new))
    turned = (*new[:at], *reversed(new[at : at + 2]), *new[at + 2 :])
    return turned if turned[at : at + 2] == tuple(old[at : at + 2]) and _same_way(new, old) else new


def _is_slip(op: Any, new: Sequence[str], old: Sequence[str], *, seen: Seen, free: bool) -> bool:
    """Whether people write so without meaning anything else."""
    mine, theirs = new[op.src_start : op.src_end], old[op.dest_start : op.dest_end]
    if len(mine) > 1 or len(theirs) > 1:
        return free and not (mine and theirs)
    few, many = sorted(
        (
            min(seen[pair] for pair in _pairs(new)[op.src_start : op.src_end + 1]),
            min(seen[pair] for pair in _pairs(old)[op.dest_start : op.dest_end + 1]),
        )
    )
    if not (mine and theirs):
        return free or _is_stray(new if mine else old, op, slip=few < max(KNOWN_PIECE, RARE * many))
    if mine[0].isascii() and theirs[0].isascii():
        return _is_misspelt(mine[0], theirs[0], seen)
    return few < max(KNOWN, RARE * many) and (
        mine[0] == "1" or theirs[0] == "1" or not (mine[0].isascii() or theirs[0].isascii())
    )


def _is_misspelt(one: str, other: str, seen: Seen) -> bool:
    """Whether one of two Latin words is the other, with a letter or two wrong, and no word itself."""
    few, many = sorted((seen[one], seen[other]))
    often, seldom = few >= max(KNOWN, RARE * many), few < RARE * many
    known = sum(is_listed(word) or often or is_word(word) and not seldom for word in (one, other))
    if known == 2 or DENIED in (one, other) or not (one.isalpha() and other.isalpha() and (one + other).isascii()):
        return False
    most = 2 if known and max(len(one), len(other)) >= 7 else 1
    return OSA.distance(one, other) <= most or _is_shortened(*sorted((one, other), key=len))


def _is_shortened(short: str, word: str) -> bool:
    """Whether people write the one for the other: dept, shd, tmrw."""
    rest = iter(word)
    return len(word) > 3 and short[:1] == word[:1] and len(short) > 1 and all(char in rest for char in short)


def _is_stray(tokens: Sequence[str], op: Any, *, slip: bool) -> bool:
    """Whether the token may be there by a slip: a twin of its neighbour, or a character that is no turn of the next."""
    at: int = op.src_start if op.tag == "delete" else op.dest_start
    twin = tokens[at] in (*tokens[max(0, at - 1) : at], *tokens[at + 1 : at + 2])
    return twin or slip and not (tokens[at] in TURNS or tokens[at].isascii())
