"""Question files that are made smaller: what a person wrote in a row stays in it, keys that nobody here knows too."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foundation.errors import UserError
from foundation.files import decode_line, numbered_lines, refuse_input, write_lines
from sql_agent.data.dataset import numbered_questions, write_parquet
from sql_agent.records import Question

SUFFIXES = (".jsonl", ".parquet")


@dataclass(frozen=True)
class Row:
    """A question, its number in the file it came from (from 1), and the row as it stood there."""

    number: int
    question: Question
    raw: dict[str, Any]

    @property
    def text(self) -> str:
        """What is asked."""
        return self.question.question


def read_rows(path: Path) -> list[Row]:
    """The rows of a question file. Raises UserError where the file or any row is bad."""
    rows = numbered_questions(path)
    if path.suffix.lower() in (".parquet", ".csv"):
        return [Row(number, question, question.model_dump()) for number, question in rows]
    raw = {number: decode_line(line) for number, line in numbered_lines(path)}
    return [Row(number, question, raw[number]) for number, question in rows]


def check_out(out: Path, *inputs: Path, suffixes: Collection[str] = SUFFIXES) -> None:
    """Raise UserError where the results cannot go to `out`."""
    if out.suffix.lower() not in suffixes:
        raise UserError(f"{out}: {out.suffix or 'no suffix'} cannot be written; name a file of {' or '.join(suffixes)}")
    refuse_input(out, *inputs)


def write_rows(out: Path, rows: Iterable[Row]) -> None:
    """Write rows, atomically."""
    if out.suffix.lower() == ".parquet":
        write_parquet((row.question for row in rows), out)
    else:
        write_lines(out, (row.raw for row in rows))


def write_dropped(out: Path, dropped: Iterable[tuple[Row, str]]) -> Path:
    """Write what was dropped, and why, beside what was kept."""
    path = out.with_name(f"{out.stem}.dropped.jsonl")
    write_lines(
        path, ({"row": row.number, "id": row.question.id, "question": row.text, "why": why} for row, why in dropped)
    )
    return path
