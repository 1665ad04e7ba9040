"""Markdown tables in an answer as sentences that the offline judge can read.

A column per subject ("| | A | B |") becomes "A: its cells. B: its cells."; any other table is read row by row, with a
row that begins with a subject as "A: the rest", and cells that only together make a phrase joined. Guarantees: pure
function on normalised text, linear in its length; no cell is lost but the numbers of rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

RULE = re.compile(r"[\s|:+-]*-[\s|:+-]*")


def flatten(text: str, *, subjects: Sequence[str], phrases: Collection[str]) -> str:
    """`text` with each table, a header over a rule, as sentences."""
    lines, out, i = text.split("\n"), [], 0
    while i < len(lines):
        if "|" in lines[i] and i + 1 < len(lines) and "|" in lines[i + 1] and RULE.fullmatch(lines[i + 1]):
            rows, i = [_cells(lines[i])], i + 2
            while i < len(lines) and "|" in lines[i]:
                rows.append(_cells(lines[i]))
                i += 1
            out.append(_sentences(rows, subjects, phrases))
        else:
            out.append(lines[i])
            i += 1
    return "\n".join(out)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _sentences(rows: list[list[str]], subjects: Sequence[str], phrases: Collection[str]) -> str:
    rows = _without_numbers(rows)
    header, body = rows[0], rows[1:]
    columns = [i for i, cell in enumerate(header) if any(subject in cell for subject in subjects)]
    if len(columns) < 2:
        return f"{''.join(header)}:{';'.join(_row(row, subjects, phrases) for row in body)}。"
    others = [i for i in range(len(header)) if i not in columns]
    title = "".join(header[i] for i in others)
    told = []
    for i in columns:
        cells = [
            "".join([*(row[j] for j in others if j < len(row)), row[i]]) for row in body if i < len(row) and row[i]
        ]
        told.append(f"{title}{header[i]}:{';'.join(cells)}。")
    return "".join(told)


def _row(row: Sequence[str], subjects: Sequence[str], phrases: Collection[str]) -> str:
    cells = [cell for cell in row if cell]
    if "".join(cells) in phrases:
        return "".join(cells)
    if len(cells) > 1 and any(subject in cells[0] for subject in subjects):
        return f"{cells[0]}:{'、'.join(cells[1:])}"
    return "、".join(cells)


def _without_numbers(rows: list[list[str]]) -> list[list[str]]:
    """Without a first column that only counts the rows."""
    counted = [row[0] for row in rows[1:]] == [str(n) for n in range(1, len(rows))]
    return [row[1:] for row in rows] if counted and len(rows) > 1 and len(rows[0]) > 1 else rows
