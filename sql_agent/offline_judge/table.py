"""Markdown tables whose columns are the things asked for, in an order that can be read line by line.

Guarantees: pure function on normalised text, linear in its length; no cell is lost; other text stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection


def by_column(text: str, names: Collection[str]) -> str:
    """`text` with each table that has names in two columns of its header told column by column."""
    lines, out = text.split("\n"), []
    while lines:
        header = _cells(lines[0])
        if sum(any(name in cell for name in names) for cell in header) < 2:
            out.append(lines.pop(0))
            continue
        n_rows = next((i for i, line in enumerate(lines) if "|" not in line), len(lines))
        rows = [_cells(line) for line in lines[:n_rows]]
        out += [row[column] for column in range(len(header)) for row in rows if column < len(row)]
        lines = lines[n_rows:]
    return "\n".join(out)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")] if "|" in line else []
