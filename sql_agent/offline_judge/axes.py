"""What tells facts apart by what they stand under: headings of one cell, rows and columns of tables, records.

An axis is a heading (spelt) -> the facts under it. Guarantees: pure functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sql_agent.offline_judge.clauses import SENTENCE_END, texts_of
from sql_agent.offline_judge.lexicon import spell
from sql_agent.offline_judge.normal import normalise
from sql_agent.offline_judge.sections import Cell, Fact, Item, Record
from sql_agent.offline_judge.tables import ties

Axis = dict[str, frozenset[int]]
REST = ("其他", "其它", "other", "others")  # a heading that an answer calls otherwise: besides


def axes_of(question: str, cells: Sequence[Cell], record: Record, known: Sequence[Fact]) -> list[Axis]:
    """What tells the facts of one cell apart, where it is more than one thing; headings are spelt."""
    found = []
    for n, (cell, items) in enumerate(zip(cells, record, strict=False)):
        told = {form: i for i, fact in enumerate(known) if fact.section == n for form in fact.forms}
        tables = ties(cell.text, texts_of)
        times = Counter(item for _, item in items)  # what stands under no heading too is tied to none
        lines = f"{normalise(cell.text)}\n"
        under = [
            [pair for pair in items if pair[0] and (f"{pair[0]}:\n" in lines) is is_line] for is_line in (True, False)
        ]
        for pairs in (*under, *tables, conditions(question, cell.text)):
            tied = Counter(item for _, item in pairs)
            axis: dict[str, set[int]] = {}
            for heading, item in pairs:
                if not spell(heading).strip() or heading in (item, cell.column, *REST):
                    continue
                under = axis.setdefault(spell(heading), set())  # of what is not asked too
                if item in told and tied[item] >= times[item]:
                    under.add(told[item])
            found += (
                [{heading: frozenset(under) for heading, under in axis.items()}]
                if len(axis) > 1 and any(axis.values())
                else []
            )
    return found


def conditions(question: str, text: str) -> list[Item]:
    """(condition, item): under what the question says, in what a sentence says behind it."""
    asked, found = spell(question), list[Item]()
    for sentence in SENTENCE_END.split(normalise(text)):
        last = ""
        for item in texts_of(sentence):
            if spell(item) in asked:
                last = item
            elif last:
                found.append((last, item))
    return found


def axes_of_records(
    question: str, cells: Sequence[Cell], record: Record, told: Sequence[Item], facts: Sequence[Fact]
) -> list[Axis]:
    """What tells records apart that the question does not name: the first cell of each row, the reference's labels, the
    columns, but not where the question calls some of them otherwise."""
    groups = [
        [n for n, cell in enumerate(cells) if (cell.row or str(n)) == row]
        for row in dict.fromkeys(cell.row or str(n) for n, cell in enumerate(cells))
    ]
    rows = {record[n][0][1]: {*others} for n, *others in groups if others and len(record[n]) == 1}
    labels = {label: {f.section for f in facts if (label, f.forms[0]) in told} for label, _ in told if label}
    is_one_each = sorted(n for sections in labels.values() for n in sections) == [*range(len(cells))]
    columns = {cell.column: {n for n, c in enumerate(cells) if c.column == cell.column} for cell in cells}
    ways = [rows if len(rows) == len(groups) else {}, labels if is_one_each and len(labels) == len(cells) else {}]
    is_asked = {spell(column) in spell(question) for column in columns}
    ways += [columns] if "" not in columns and len(is_asked) == 1 else []
    held = [{name: [i for i, f in enumerate(facts) if f.section in way[name]] for name in way} for way in ways]
    return [{spell(name): frozenset(way[name]) for name in way} for way in held if len(way) > 1]
