"""Values told of another row than theirs, or of another column of the one row.

Guarantees: a pure function, linear in the text. Headings are the first cells of rows, or the columns' names and what
says the same ("largest" for "max"); `tables` says which order of headings and values is torn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sql_agent.offline_judge.lexicon import Lexicon, spell, tokens
from sql_agent.offline_judge.slots import SAME
from sql_agent.offline_judge.tables import Told, is_swapped, is_torn
from sql_agent.offline_judge.typed.columns import IS_KEY
from sql_agent.offline_judge.typed.forms import forms_of
from sql_agent.offline_judge.typed.truths import Truth, form_of

Rows = Sequence[tuple[str, ...]]  # each begins with its heading
MIN_WORD = 4  # letters of a word that tells a column


def are_exchanged(truth: Truth, question: str, said: str) -> bool:
    is_by_column = len(truth.rows) == 1
    rows = _columns_as_rows(truth) if is_by_column else _without_spare_columns(truth, question)
    if len(rows) < 2 or max(map(len, rows)) < 2:
        return False
    told = _told_in(said, rows, question)
    named = {word for word, _, is_heading in told if is_heading}
    if named and not is_by_column and any(under and not under & named for _, under, is_head in told if not is_head):
        return True
    # Where the answer names no heading, the order of the question's counts.
    asked = list[Told]()
    for one in _told_in(question, rows, question):
        if one[2] and one not in asked:
            asked.append(one)
    asked_words = {word for word, *_ in asked}
    if not truth.is_ordered and all(not is_heading and under & asked_words for _, under, is_heading in told):
        return is_torn([*asked, *told])
    return is_swapped(told) if is_by_column else is_torn(told)


def _without_spare_columns(truth: Truth, question: str) -> Rows:
    """The rows without the columns that tell no row from another: with one value in all, and of numbers as keys."""
    columns, told = [*zip(*truth.rows, strict=False)], {*truth.values, *spell(question).split()}
    kept = [
        column
        for name, column in zip(truth.columns, columns, strict=False)
        if len({*column}) > 1 and (told & {*column} or not (IS_KEY.search(name) and all(map(str.isdecimal, column))))
    ]
    return [*zip(*kept, strict=True)]


def _told_in(text: str, rows: Rows, question: str) -> list[Told]:
    headings = {row[0] for row in rows}
    values = {
        spell(form): value for row in rows for value in row for form in forms_of(value, form_of(value), question, text)
    }
    told = [values[spelling] for *_, spelling in Lexicon(values).read(text)[0]]
    return [(value, frozenset(row[0] for row in rows if value in row), value in headings) for value in told]


def _columns_as_rows(truth: Truth) -> Rows:
    """(heading, value) for each name of a column: as it is, by a word that says the same, and by each word that the
    other columns have not ("retired" of "retired on"). A number is not exchanged with a name."""
    forms = Counter(map(form_of, truth.rows[0]))
    columns = [
        (name, value)
        for name, value in zip(truth.columns, truth.rows[0], strict=False)
        if value in truth.values and forms[form_of(value)] > 1
    ]
    words = {name: [token[0] for token in tokens(name)] for name, _ in columns}
    rows = list[tuple[str, str]]()
    for name, value in columns:
        of_others = {word for other in words if other != name for word in words[other]}
        synonyms = [synonym for word in words[name] for synonym in SAME.get(word, ())]
        own_words = [word for word in words[name] if len(word) >= MIN_WORD and word not in of_others]
        rows += [(heading, value) for heading in (name, *synonyms, *own_words)]
    return rows
