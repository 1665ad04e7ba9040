"""Near-duplicates among questions: the same with other words for it, courtesy, marks, script or order, or with a slip.

Guarantees: a pure function of the texts and their order; two questions are never the same that name other numbers or
units of them, other drugs or diseases of words.txt, two things of a row of contrasts.txt, or of which one denies, or
in which two things changed roles (tiles.py). Where else they differ, both must mean the
same, by words.txt or a dictionary, or one must be short for the other, or a slip, one a question (gaps.py). Candidates
come from a sparse product of rare words and pairs of words, so that large files are no square. Not covered:
paraphrases of more than a phrase. A name that no other question and no list has, one letter from the other, is a slip.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rapidfuzz.distance import OSA, Levenshtein
from scipy.sparse import csr_matrix

from sql_agent.curation.formulas import without_formulas
from sql_agent.curation.gaps import (
    UNLIKELY,
    Gap,
    Seen,
    gaps_between,
    is_acronym,
    is_misspelt,
    is_slip,
    less_likely,
    lookalikes,
    means_same,
    pairs,
    unlike,
)
from sql_agent.curation.tiles import change_roles, rearranged, tiles
from sql_agent.curation.wording import DENIALS, DENIED, Wording, contrast, groups, wording
from sql_agent.words.meanings import sounds

# What follows these is what they speak of: "A before B" is not "B before A".
DIRECTED = frozenset(f"{DENIED} than before after from into instead minus divided subtract 比 减 除 转 从".split())
CAUSED = "cause"  # what follows stays on its side
CANDIDATE = 0.25  # of the cosine; what is less alike is not looked at
ACRONYM_ALIKE = 0.9
LONGEST = 6  # letters of an acronym
MOST_EDITS = 8  # tokens, besides a fifth
MOST_GAPS = 2  # besides an eighth of the tokens
LONG = 16  # tokens that may hold another slip
ROWS_AT_ONCE = 1000


@dataclass(frozen=True)
class Match:
    """Question `index` repeats question `other`; `score` is the share of the tokens that are the same."""

    index: int
    other: int
    score: float


def repeats(texts: Sequence[str], *, n_old: int = 0) -> Iterator[Match]:
    """For each text from `n_old` on that repeats an earlier one (one that repeats none itself), the best match."""
    dropped: set[int] = set()
    for matches in alike(texts, n_old=n_old):
        if remaining := [match for match in matches if match.other not in dropped]:
            best = max(remaining, key=lambda match: (match.score, -match.other))
            dropped.add(best.index)
            yield best


def alike(texts: Sequence[str], *, n_old: int = 0) -> Iterator[list[Match]]:
    """For each text from `n_old` on the earlier ones that it repeats; in order."""
    forms = [wording(text) for text in without_formulas(texts)]
    seen: Seen = Counter()
    for form in forms:
        seen.update({*pairs(form.plain), *pairs(form.framed), *pairs(form.written), *form.words, *form.framed})
    for index, others in _candidates(forms, n_old):
        scores = {other: _alike(forms[index], forms[other], seen) for other in others}
        yield [Match(index, other, round(score, 4)) for other, score in scores.items() if score]


def _candidates(forms: Sequence[Wording], n_old: int) -> Iterator[tuple[int, list[int]]]:
    """Each text from `n_old` on, with the earlier ones that have its numbers and share enough of its rare words and
    pairs of tokens."""
    matrix = _weights(forms)
    ids: dict[tuple[str, ...], int] = {}
    numbers = np.array([ids.setdefault(form.numbers, len(ids)) for form in forms])
    for start in range(n_old, len(forms), ROWS_AT_ONCE):
        stop = min(start + ROWS_AT_ONCE, len(forms))
        products: Any = (matrix[start:stop] @ matrix[:stop].T).tocsr()
        for row in range(stop - start):
            begin, end = products.indptr[row], products.indptr[row + 1]
            near = products.indices[begin:end][products.data[begin:end] >= CANDIDATE]
            near = near[(near < start + row) & (numbers[near] == numbers[start + row])]
            yield start + row, sorted(near.tolist())


def _weights(forms: Sequence[Wording]) -> csr_matrix:
    """A row of length 1 for each form: its words, and pairs of tokens, weighted by their rarity."""
    bags = [Counter([*form.words, *_ends(form), *pairs(form.plain)]) for form in forms]
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
    if _denies_alone(new, old) or _name_others(new, old):
        return 0.0
    if any(mine == theirs for mine, theirs in zip(new.joined, old.joined, strict=True)):
        return 1.0
    if contrast(new, old) or change_roles(new.framed, tiles(new.framed, old.framed)):
        return 0.0
    turned = zip(new.ordered, old.ordered, new.views, old.views, strict=True)
    if any(mine == theirs and _same_way(*views) for mine, theirs, *views in turned):
        return 1.0
    if OSA.distance(new.written, old.written, score_cutoff=1) == 1 and (
        share := _share(new.written, old.written, seen=seen)
    ):
        return share
    return max(_reordered(new, old, seen), *(_ordered(*view, seen) for view in zip(new.views, old.views, strict=True)))


def _denies_alone(new: Wording, old: Wording) -> bool:
    """Whether one denies more often, and by more than a slip in a character (周未 for 周末)."""
    if any(mine == theirs for mine, theirs in zip(new.denials, old.denials, strict=True)):
        return False
    gaps = gaps_between(new.framed, old.framed)
    denying = [gap for gap in gaps if DENIALS & {*new.framed[gap[0] : gap[1]], *old.framed[gap[2] : gap[3]]}]
    return not denying or any(not _denies_by_mistake(gap, new.framed, old.framed) for gap in denying)


def _denies_by_mistake(gap: Gap, new: Sequence[str], old: Sequence[str]) -> bool:
    """Whether a character that denies is for another one: 周未, 没天."""
    mine, theirs = new[gap[0] : gap[1]], old[gap[2] : gap[3]]
    if not len(mine) == len(theirs) == 1 or (*mine, *theirs) in lookalikes():
        return (*mine, *theirs) in lookalikes()
    return bool(sounds(*mine) & sounds(*theirs)) and less_likely(gap, new, old) >= UNLIKELY


def _ordered(new: Sequence[str], old: Sequence[str], seen: Seen) -> float:
    """The share, in this order or in the other's."""
    if share := _share(new, old, seen=seen):
        return share
    turned = rearranged(new, old, tiles(new, old))
    return _share(turned, old, seen=seen) if turned != tuple(new) else 0.0


def _name_others(new: Wording, old: Wording) -> bool:
    """Whether each names a drug or disease that the other does not."""
    return bool(new.names - old.names and old.names - new.names)


def _reordered(new: Wording, old: Wording, seen: Seen) -> float:
    """The share where one is the other in another order, with a slip in few of its words, or with an acronym."""
    most = max(len(new.words), len(old.words))
    if len(new.bag ^ old.bag) > max(1 + LONGEST, most // 2) or not _same_way(new.words, old.words):
        return 0.0
    mine, theirs = _less(new.words, old.words), _less(old.words, new.words)
    if is_acronym(mine, theirs) or is_acronym(theirs, mine):
        return ACRONYM_ALIKE
    if len(new.words) != len(old.words) or len(mine) != len(theirs) or len(mine) > max(1, most // 5):
        return 0.0
    kin = groups()[2]
    slips = all(any((word, other) in kin or is_misspelt(word, other, seen) for other in theirs) for word in mine)
    return 1 - len(mine) / most if slips else 0.0


def _less(words: Sequence[str], others: Sequence[str]) -> list[str]:
    """The words without the others, each as often as it stands there, in order."""
    extra = Counter(words) - Counter(others)
    return [word for word in words if word in extra]


def _same_way(new: Sequence[str], old: Sequence[str]) -> bool:
    """Whether numbers have their units, and words with a direction what they are said of, in both."""
    for word in {*new} & {*old}:
        mine, theirs = _after(word, new), _after(word, old)
        if word[:1].isdigit() and mine != theirs and _after(word, new[::-1]) != _after(word, old[::-1]):
            return False
        if word in DIRECTED and all(mine + theirs) and mine != theirs:
            return False
        if word == CAUSED and {*mine} & {*old[: old.index(word)]} - {*theirs}:
            return False
    return True


def _after(word: str, words: Sequence[str]) -> list[str]:
    """What follows each of a word's places: a word, or two characters of Chinese."""
    followers: list[str] = []
    for at, other in enumerate(words):
        if other == word:
            following = "".join(words[at + 1 : at + 2])
            followers.append(following if following.isascii() else "".join(words[at + 1 : at + 3]))
    return sorted(followers)


def _turned_back(new: Sequence[str], old: Sequence[str]) -> Sequence[str]:
    """The tokens with the first two that stand the other way round there turned back."""
    at = next((at for at, (mine, theirs) in enumerate(zip(new, old, strict=False)) if mine != theirs), len(new))
    turned = (*new[:at], *reversed(new[at : at + 2]), *new[at + 2 :])
    return turned if turned[at : at + 2] == tuple(old[at : at + 2]) and _same_way(new, old) else new


def _share(new: Sequence[str], old: Sequence[str], *, seen: Seen) -> float:
    """The share of tokens that stand in both in one order, where the others are slips or mean the same."""
    most = max(len(new), len(old))
    if Levenshtein.distance(new, old, score_cutoff=MOST_EDITS + most // 5) > MOST_EDITS + most // 5:
        return 0.0
    new = _turned_back(new, old)
    share = Levenshtein.normalized_similarity(new, old)
    gaps = gaps_between(new, old)
    if len(gaps) > max(MOST_GAPS, most // 8):
        return 0.0
    odd = [part for gap in gaps for part in unlike(gap, new, old, seen=seen)]
    if odd and len(gaps) > 1 and means_same((gaps[0][0], gaps[-1][1], gaps[0][2], gaps[-1][3]), new, old):
        return share
    return share if len(odd) <= 1 + most // LONG and all(is_slip(gap, new, old, seen=seen) for gap in odd) else 0.0
