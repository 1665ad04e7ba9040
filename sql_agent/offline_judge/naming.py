"""What an answer may call the things that are asked for, where several sections hold facts of them.

Guarantees: pure functions. A name is a text in normal form -> the sections that it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from os.path import commonprefix

from sql_agent.offline_judge.clauses import ITEM_END, LABEL_END, SENTENCE_END
from sql_agent.offline_judge.echoes import CLOSED, JUDGING
from sql_agent.offline_judge.lexicon import Lexicon, spell, tokens
from sql_agent.offline_judge.normal import normalise
from sql_agent.offline_judge.sections import MAX_RUN, Cell, Fact, Item, Names, Record, compared, labelled, parts, runs
from sql_agent.offline_judge.slots import content
from sql_agent.offline_judge.words import RELATIONS, phrases
from sql_agent.words.meanings import in_chinese

MIN_BEGINNING = 3  # characters of a Chinese name
MAX_NAME = 12  # tokens of a cell that may name its row
FORMER, LATTER = ("前者", "former", "the former"), ("后者", "latter", "the latter")


def names_of(question: str, reference: str, record: Record, cells: Sequence[Cell], facts: Sequence[Fact]) -> Names:
    """What tells the sections of `facts` apart; nothing where there is one. `cells` are none where the reference is the
    evidence."""
    closed = Lexicon(CLOSED)
    naming = Lexicon(part for part in parts(question) if closed.read(part)[1])
    names = labelled(_under_names(reference, naming), record, naming, facts)
    told_apart = {frozenset(name for name in names if fact.section in names[name]) for fact in facts}
    if cells and len(told_apart) < len({fact.section for fact in facts}):
        known = {item for items in record for _, item in items}
        names = compared(question, cells, facts, known) | names
    by_row = _names_by_row(question, cells)
    around = {name for name in names for row in by_row if spell(row) in spell(name) and names[name] <= by_row[row]}
    names = by_row | {name: names[name] for name in names.keys() - around | by_row.keys() & names.keys()}
    names = _names_by_column(question, cells, names, facts) | _names_by_relation(question, names) | names
    return _names_by_order(question, cells, record, names) | names


def _under_names(reference: str, asked: Lexicon) -> list[Item]:
    """(label, item) as of `_items`, under the last label that has other words of the question than that before it."""
    label, found = "", list[Item]()
    for clause in re.split(f"{SENTENCE_END.pattern}|{ITEM_END.pattern}", normalise(reference)):
        *before, item = (part.strip() for part in LABEL_END.split(clause))
        for one in before:
            label = one if any(run not in label for run in runs(one, asked)) else label
        found.append((label, item))
    return found


def _names_by_row(question: str, cells: Sequence[Cell]) -> Names:
    """What keys and short cells that the question tells of call their rows, where all rows have such names."""
    rows, asked = {cell.row for cell in cells}, Lexicon(parts(question))
    called = {row: {*_beginnings(normalise(row))} if re.search(r"[^\W\d]", row) else set[str]() for row in rows if row}
    naming = {cell.column for cell in naming_cells(cells, question)}
    for cell in cells:
        text = normalise(cell.text)
        if cell.row in called and cell.column in naming and len(tokens(text)) <= MAX_NAME:
            told = [text[start:end] for start, end, _ in asked.read(text)[0]]
            called[cell.row] |= {text, max(told, key=len, default=text)}
    if len(called) < 2 or not all(called.values()):
        return {}
    same = len(commonprefix([[one[0] for one in tokens(max(names, key=len))] for names in called.values()]))
    for names in called.values():  # Red Barn and Red Mill: the Barn, the Mill
        names |= {name[one.start() :] for name in names for one in tokens(name)[same : same + 1] if same}
    others = {row: {name for one in called if one != row for name in called[one]} for row in called}
    own = {
        row: {one for one in called[row] if len(one) > 1 and not any(spell(one) in spell(name) for name in others[row])}
        for row in called
    }
    if not all(own.values()):
        return {}
    return {name: frozenset(n for n, cell in enumerate(cells) if cell.row == row) for row in own for name in own[row]}


def _beginnings(name: str) -> Iterator[str]:
    """A name, and what it is called in short: without words at its end."""
    words = tokens(name)
    sizes = range(len(words), (MIN_BEGINNING if words and not words[0][0].isascii() else 1) - 1, -1)
    yield name
    yield from (name[: words[size - 1].end()] for size in sizes)


def _names_by_column(question: str, cells: Sequence[Cell], names: Names, facts: Sequence[Fact]) -> Names:
    """What an answer may call the columns, where there are several and names tell sections apart."""
    told = {fact.section for fact in facts}
    columns = dict.fromkeys(cell.column for cell in cells) if names else {}
    called = {column: {column, *translated(column, question), *_ends_of(column)} for column in columns}
    return {
        word: frozenset(n for n, cell in enumerate(cells) if cell.column == column)
        for column, words in called.items()
        for word in words
        if len(columns) > 1
        and any(cells[n].column == column for n in told)
        and sum(word in others for others in called.values()) == 1
        and not any(spell(word) in spell(other) for other in columns if other != column)
    }


def _ends_of(column: str) -> set[str]:
    """What a column may be called in short: its last tokens, two characters or a word at least."""
    found = tokens(column)[-MAX_RUN:]
    ends = {column[one.start() :] for one in found}
    return {end for end in ends if len(end) > 1 and not JUDGING.search(end)}


def _names_by_order(question: str, cells: Sequence[Cell], record: Record, names: Names) -> Names:
    """The former and the latter, where the question names two things; nothing where the evidence has such words."""
    thing_of = [cell.row or str(n) for n, cell in enumerate(cells)] or [*map(str, range(len(record)))]
    asked, places = spell(question), dict[str, int]()
    for name, sections in names.items():
        things = {thing_of[n] for n in sections}
        if len(things) == 1 and (place := asked.find(spell(name))) >= 0:
            thing = things.pop()
            places[thing] = min(place, places.get(thing, place))
    said = " ".join(spell(item) for items in record for _, item in items)
    if len(places) != 2 or any(spell(word) in said for word in (*FORMER, *LATTER)):
        return {}
    return {
        word: frozenset(n for n, thing in enumerate(thing_of) if thing == one)
        for one, words in zip(sorted(places, key=lambda one: places[one]), (FORMER, LATTER), strict=True)
        for word in words
    }


def naming_cells(cells: Sequence[Cell], question: str) -> list[Cell]:
    """Those by which the question calls their rows: it says words of theirs that not every row has there."""
    asked, told = _words(question), [_words(normalise(cell.text)) for cell in cells]
    of_column: dict[str, dict[str, set[str]]] = {}  # column -> row -> words
    for cell, words in zip(cells, told, strict=True):
        of_column.setdefault(cell.column, {}).setdefault(cell.row, set()).update(words)
    every = {one: set.intersection(*of_row.values()) if len(of_row) > 1 else set() for one, of_row in of_column.items()}
    own = [words & asked - every[cell.column] for cell, words in zip(cells, told, strict=True)]
    return [cell for cell, words in zip(cells, own, strict=True) if words and _names_row(cell, question)]


def _words(text: str) -> set[str]:
    return {one[0] for one in tokens(text)}


def _names_row(cell: Cell, question: str) -> bool:
    """Whether a short cell of one clause has words of the question that its column has not; half of its words, where
    the question says the column too."""
    text = normalise(cell.text)
    words, told = content(text), content(text) & content(question)
    is_short = bool(cell.column) and len(tokens(text)) <= MAX_NAME and not re.search(r"[;。!?\n]", text.rstrip("。"))
    return (
        is_short
        and bool(told - content(cell.column))
        and (spell(cell.column) not in spell(question) or 2 * len(told) >= len(words))
    )


def translated(column: str, question: str) -> set[str]:
    """What a Chinese question may call a column of an English name, as a whole and word by word."""
    words = {column, *column.split()} if not question.isascii() else set[str]()
    return {one for word in words if word and word.isascii() for one in in_chinese(word)}


def _names_by_relation(question: str, names: Names) -> Names:
    """How a sentence says the kinds of things that the question asks for, where their names tell sections apart."""
    said = Names()
    for wanted, says in RELATIONS:
        sections = {names[name] for name in names if re.search(wanted, name)}
        words = (word for word in phrases(says) if len(word) > 1 and word not in question)
        said |= dict.fromkeys(words, *sections) if len(sections) == 1 else {}
    return said
