"""What of held-out questions stands in training questions: each leak is named with both rows.

Found are: the same question, a near-duplicate (near.py), a held-out question inside a longer training question, the
same reference query, and the same reference answer where it is long. Not covered: paraphrases with another answer, and
entities (data/splits.py keeps those apart). Two queries are the same that differ in aliases, quotes, case, blanks,
comments and the order of what is joined by AND, OR, = or stands in IN; two that return the same by other ways are not.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.simplify import simplify

from sql_agent.curation.near import alike
from sql_agent.curation.rows import Row
from sql_agent.curation.wording import wording
from sql_agent.offline_judge.normal import normalise

MIN_INSIDE_TOKENS = 8
MOST_TOKENS = 300  # simplify takes the square of a condition's terms: a = a = a ... of so many 1 s, OR 0.1 s
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


@functools.lru_cache(maxsize=100_000)
def query_form(sql: str) -> str:
    """One form for all ways to write a query; one that cannot be parsed, or has more tokens, stays a text."""
    with suppress(SqlglotError, RecursionError, ArithmeticError):  # 1e999999999 * 10
        if len(sqlglot.tokenize(sql, read="sqlite")) <= MOST_TOKENS:
            tree = sqlglot.parse_one(sql, read="sqlite")
            for name in tree.find_all(exp.Identifier):
                name.replace(exp.to_identifier(name.name.lower(), quoted=False))
            _drop_own_names(tree)
            return _in_one_order(tree).sql(dialect="sqlite", comments=False)
    return " ".join(sql.split()).rstrip("; ")


def _drop_own_names(tree: exp.Expr) -> None:
    """Tables stand under their own names (the second of one name is NAME_2), columns of an only table without it."""
    new_names: dict[str, str] = {}
    tables = list(tree.find_all(exp.Table, exp.Subquery, bfs=False))  # in the order of the text
    seen: dict[str, int] = {}
    for table in tables:
        real = table.name if isinstance(table, exp.Table) else "subquery"
        seen[real] = seen.get(real, 0) + 1
        new_names.setdefault(table.alias or real, real if seen[real] == 1 else f"{real}_{seen[real]}")
        table.set("alias", None)
    for column in list(tree.find_all(exp.Column)):
        table = new_names.get(column.table, column.table)
        column.set("table", exp.to_identifier(table) if table and len(tables) > 1 else None)
    if not isinstance(tree, exp.Select):
        return
    aliased = {term.alias: term.this for term in tree.expressions if isinstance(term, exp.Alias)}
    for column in list(tree.find_all(exp.Column)):
        if not column.table and column.name in aliased and column.find_ancestor(exp.Order, exp.Group, exp.Having):
            column.replace(aliased[column.name].copy())
    for term in list(tree.expressions):
        if isinstance(term, exp.Alias):
            term.replace(term.this)


def _in_one_order(tree: exp.Expr) -> exp.Expr:
    """Terms that have no order of their own, sorted; sqlglot does so with all but the list of IN."""
    for node in list(tree.find_all(exp.In)):
        node.set("expressions", sorted(node.expressions, key=lambda item: item.sql()))
    for node in [node for node in tree.find_all(exp.And) if isinstance(node.parent, exp.Or)]:
        node.replace(exp.paren(node.copy()))
    return simplify(tree)
