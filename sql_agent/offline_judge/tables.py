"""What a cell tells of each other: the items under a label, the fields of a row, the columns of a table.

A value is told of its own heading where it follows it, or precedes it all along, or where several headings are listed
and the values follow in their order. Guarantees: pure functions, linear in the text. Not covered: a table whose first
cells are numbers is known by its columns alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from itertools import groupby, zip_longest

from sql_agent.offline_judge.lexicon import spell
from sql_agent.offline_judge.normal import COUNTED, normalise

RULE = re.compile(r"\s*:?-+:?\s*")
Tie = tuple[str, str]
# What was said, the headings that it stands under, whether it is one itself; "" is a heading that claims nothing.
Told = tuple[str, frozenset[str], bool]


def is_torn(told: Sequence[Told], breaks: frozenset[int] = frozenset()) -> bool:
    """Whether values were told of headings that are not theirs. `breaks`: before which places a new row begins."""
    named = {word for word, _, is_heading in told if is_heading and word}
    if all(named <= under for _, under, is_heading in told if not is_heading):  # of other headings nothing is told
        return False
    before = [one for one in reversed(told) if one[0]]
    return not (_follow(told, named, breaks) or _follow(before, named, frozenset(), alone=True))


def is_swapped(told: Sequence[Told]) -> bool:
    """Whether a heading stands beside values of other headings alone."""
    beside = [[*told[max(0, n - 1) : n], *told[n + 1 : n + 2]] for n in range(len(told))]
    return any(
        one[2] and others and not any(is_heading or one[0] in under for _, under, is_heading in others)
        for one, others in zip(told, beside, strict=True)
    )


def _follow(told: Sequence[Told], named: set[str], breaks: frozenset[int], *, alone: bool = False) -> bool:
    """Whether each run of headings is followed by their values; `alone`: by one heading's at a time."""
    headings: list[str] = []
    n = 0
    for is_heading, group in groupby(told, lambda one: one[2]):
        run = list(group)
        if is_heading:
            headings = list(dict.fromkeys(word for word, *_ in reversed(run)))[::-1]
        elif not headings:
            if any(under & named for _, under, _ in run):
                return False
        elif (
            headings[-1]
            and any(headings[-1] not in under for _, under, _ in run)
            and (alone or len(headings) < 2 or not _in_turn(run, headings, n, breaks))
        ):
            return False
        n += len(run)
    return True


def _in_turn(run: Sequence[Told], headings: list[str], first: int, breaks: frozenset[int]) -> bool:
    """Whether the values are told in the order of the headings, row by row where rows are known."""
    last = -1
    for n, (_, under, _) in enumerate(run, start=first):
        at = next((i for i, one in enumerate(headings) if one in under and (i > last or n in breaks)), None)
        if at is None:
            return False
        last = at
    return True


def rows(text: str) -> list[list[list[str]]]:
    """The tables of a cell as rows of raw fields, HTML and Markdown; the first row is the header, or empty."""
    found = []
    for table in re.split(r"<table\b", text, flags=re.I)[1:] or ([text] if re.search(r"<tr\b", text, re.I) else []):
        lines = re.split(r"<tr\b[^>]*>", table.split("</table", 1)[0], flags=re.I)[1:]
        fields = [re.split(r"<t[dh]\b[^>]*>", line, flags=re.I)[1:] for line in lines]
        has_header = bool(lines) and re.search(r"<th\b", lines[0], re.I) and not re.search(r"<td\b", lines[0], re.I)
        found.append(fields if has_header or _is_headed(fields) else [[], *fields])
    for is_table, block in groupby(text.split("\n"), lambda line: line.count("|") > 1):
        lines = [line.strip().strip("|").split("|") for line in block] if is_table else []
        rules = [n for n, line in enumerate(lines) if all(RULE.fullmatch(field) for field in line)]
        if lines:
            lines = [line for n, line in enumerate(lines) if n not in rules or rules != [1]]
            found.append(lines if rules == [1] or _is_headed(lines) else [[], *lines])
    return found


def _is_headed(lines: list[list[str]]) -> bool:
    """Whether a first row without numbers stands above a column of them."""
    if len(lines) < 3 or any(re.search(r"\d", re.sub(r"[(（][^()（）]*[)）]", "", field)) for field in lines[0]):
        return False
    return any(all(re.search(r"\d", field) for field in column[1:]) for column in list(zip(*lines, strict=False))[1:])


def ties(text: str, items: Callable[[str], list[str]]) -> tuple[list[Tie], list[Tie]]:
    """(heading, item) of the rows and of the columns of a cell's tables; `items` are the facts of a field's text."""
    by_row, by_column = list[Tie](), list[Tie]()
    for header, *body in rows(text):
        names = [" ".join(items(field)) for field in header]
        for fields in body:
            told = [items(field) for field in fields]
            first = 1 if told and "".join(told[0]).isdecimal() else 0  # a number of the row
            if len(told) > first + 1 and len(told[first]) == 1:
                by_row += [(told[first][0], item) for field in told[first + 1 :] for item in field]
                columns = list(zip(names, told, strict=False))[first + 1 :]
                by_column += [(name, item) for name, field in columns for item in field]
    return by_row, by_column


def by_column(text: str, things: Collection[str], names: Collection[str], halves: Callable[[str, str], str]) -> str:
    """`text` with each Markdown table that has names in two columns of its head told column by column, where they are
    names of `things`, and else with the head before each cell of a column that is named, or that tells half of
    something with its head."""

    def named(row: Sequence[str], names: Collection[str]) -> list[bool]:
        return [any(name in cell for name in names) for cell in map(spell, map(normalise, row))]

    lines: list[str] = []
    for _, block in groupby(text.split("\n"), lambda line: "|" in line):
        rows, joint = [line.split("|") for line in block], "|"
        if sum(named(rows[0], things)) > 1:
            rows, joint = _columns(rows, named(rows[0], things)), "\n"
            lines += [joint.join(row) for row in rows]
            continue
        is_told = named(rows[0], names)
        is_told = is_told if sum(is_told) > 1 else [False] * len(is_told)
        if len(is_told) > 1:
            columns = list(zip_longest(*rows, fillvalue=""))
            is_told = [
                is_known or any(halves(rows[0][n], one) for one in columns[n]) for n, is_known in enumerate(is_told)
            ]
        if any(is_told):
            head = [f"{cell.strip()}: " if told else "" for cell, told in zip(rows[0], is_told, strict=True)]
            rows = [
                [
                    f"{one}{cell}" if re.search(r"\w", cell) else cell
                    for one, cell in zip_longest(head, row, fillvalue="")
                ]
                for row in rows[1:]
            ]
        lines += [joint.join(row) for row in rows]
    return "\n".join(lines)


def _columns(rows: Sequence[list[str]], named: Sequence[bool]) -> list[list[str]]:
    """The columns of a table, each cell with the head of its row before it."""
    columns: list[list[str]] = [[] for _ in max(rows, key=len)]
    corner = 0 if rows[0][0].strip() else 1
    for n, row in enumerate(rows):  # each cell after the first of its row
        is_counted = re.fullmatch(rf"(?:{COUNTED})?", "".join(filter(str.isalnum, row[corner])), re.I)
        head = f"{row[corner]}:" if n and not named[corner] and not is_counted else ""
        is_told = head and sum(re.search(r"\w", cell) is not None for cell in row) > 1  # before its other cells
        first = "" if is_told or (is_counted and re.search(r"\d", row[corner])) else row[corner]
        row = [*row[:corner], first, *row[corner + 1 :]]
        for column, cell in zip(columns, row, strict=False):
            column.append(f"{head}{cell}" if re.search(r"\w", cell) else cell)
    return columns
