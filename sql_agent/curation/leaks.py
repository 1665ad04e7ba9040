"""What of held-out questions stands in training questions: each leak is named with both rows.

Found are: the same question, a near-duplicate (near.py), a held-out question inside a longer training question, the
same reference query (queries.py), and the same reference answer where it is long. Not covered: paraphrases with another
answer, and entities (data/splits.py keeps those apart).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sql_agent.curation.near import alike
from sql_agent.curation.queries import query_form
from sql_agent.curation.rows import Row
from sql_agent.curation.wording import wording
from sql_agent.offline_judge.normal import normalise

MIN_INSIDE_TOKENS = 8
MIN_ANSWER_CHARS = 20
SAME, NEAR, INSIDE = "the same question", "a near-duplicate", "stands inside the training question"
QUERY, ANSWER = "the same reference query", "the same reference answer"


@dataclass(frozen=True)
class Leak:
    """A held-out row, the training row that gives it away, and how."""

    held: Row
    train: Row
    kinds: tuple[str, ...]


def find_leaks(train: Sequence[Row], held_out: Sequence[Row]) -> list[Leak]:
    """All leaks, by held-out row, then by training row."""
    kinds: dict[tuple[int, int], list[str]] = defaultdict(list)
    for finder in (_alike, _inside, _queries, _answers):
        for h, t, kind in finder(train, held_out):
            kinds[h, t].append(kind)
    return [Leak(held_out[h], train[t], tuple(pair_kinds)) for (h, t), pair_kinds in sorted(kinds.items())]


Matches = Iterator[tuple[int, int, str]]


def _alike(train: Sequence[Row], held_out: Sequence[Row]) -> Matches:
    texts = [row.text for row in (*train, *held_out)]
    for matches in alike(texts, n_old=len(train)):
        for match in matches:
            if match.other < len(train):
                yield match.index - len(train), match.other, SAME if match.score == 1 else NEAR


def _inside(train: Sequence[Row], held_out: Sequence[Row]) -> Matches:
    train_texts = ["\0".join(("", *wording(row.text).framed, "")) for row in train]
    for h, row in enumerate(held_out):
        tokens = wording(row.text).framed
        if len(tokens) < MIN_INSIDE_TOKENS:
            continue
        text = "\0".join(("", *tokens, ""))
        for t, train_text in enumerate(train_texts):
            if len(train_text) > len(text) and text in train_text:
                yield h, t, INSIDE


def _queries(train: Sequence[Row], held_out: Sequence[Row]) -> Matches:
    return _shared(train, held_out, QUERY, lambda row: set(map(query_form, row.question.sql)))


def _answers(train: Sequence[Row], held_out: Sequence[Row]) -> Matches:
    def answers(row: Row) -> set[str]:
        answer = normalise(row.question.answer)
        return {answer} if len(answer) >= MIN_ANSWER_CHARS else set()

    return _shared(train, held_out, ANSWER, answers)


def _shared(train: Sequence[Row], held_out: Sequence[Row], kind: str, keys: Callable[[Row], set[str]]) -> Matches:
    places: dict[str, list[int]] = defaultdict(list)
    for t, row in enumerate(train):
        for key in keys(row):
            places[key].append(t)
    for h, row in enumerate(held_out):
        yield from ((h, t, kind) for t in sorted({t for key in keys(row) for t in places.get(key, ())}))
