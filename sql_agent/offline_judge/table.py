"""Markdown tables whose columns are the things asked for, in an order that can be read line by line.

Guarantees: pure function on normalised text, linear in its length; no cell is lost; other text stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection


def by_column(text: str, names: Collection[str]) -> str:
    """`text` with each table that has names in two columns of its header told column by column."""
    lines, out = text.split("\n"), []
    while lines:
        before, header = _header(lines)
        if sum(any(name in cell for name in names) for cell in header) < 2:
            out.append(lines.pop(0))
            continue
        n_rows = next((i for i, line in enumerate(lines) if "|" not in line), len(lines))
        rows = [header, *(_cells(line) for line in lines[1:n_rows])]
        n_columns = max(map(len, rows))
        out += [before] if before else []
        out += [*(row[column] for column in range(n_columns) for row in rows if column < len(row))]
        lines = lines[n_rows:]
    return "\n".join(out)


def _header(lines: list[str]) -> tuple[str, list[str]]:
    """What stands before the table on its first line, and the cells there. The next line tells how lines begin."""
    before, bar, _ = lines[0].partition("|")
    if not (bar and len(lines) > 1 and lines[1].startswith("|")):
        before = ""
    return before, _cells(lines[0][len(before) :])


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")] if "|" in line else []
