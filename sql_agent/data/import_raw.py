"""A raw question file (bundled or a user's) -> checked, merged and split questions, with a report of what happened.

Guarantees: bad rows are counted and named, and fatal only when no good one is left; reference SQL runs read-only,
with a time limit, and may do nothing but SELECT; nothing here knows the bundled tables. Not covered: whether a
reference answer is right, and the guard for SQL that a model writes (`sql_agent.environment.database`).
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from foundation.errors import UserError, first_of
from sql_agent.data.dataset import SHOWN_ROWS, BadRow, parse_file, write_parquet
from sql_agent.data.splits import Item, assign, check_leaks, make_items
from sql_agent.data.templates import SPLITS, Split
from sql_agent.records import Question

SQL_TIMEOUT_S = 5.0
STEPS_BETWEEN_CHECKS = 10_000
ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


@dataclass
class Imported:
    """The split questions and what happened on the way; `line` counts from 1 in the raw file."""

    splits: dict[Split, list[Item]]
    bad: list[BadRow]
    n_merged: int = 0
    conflicts: list[BadRow] = field(default_factory=list)
    failing_sql: list[BadRow] = field(default_factory=list)
    n_sql: int = 0
    n_without_answer: int = 0
    warnings: list[str] = field(default_factory=list)

    def questions(self, split: Split) -> list[Question]:
        """The questions of one split, in the order of the raw file."""
        return [item.question for item in self.splits[split]]


def import_raw(
    raw: Path, database: Path | None, *, val_share: float = 0.1, test_share: float = 0.1, seed: int = 1
) -> Imported:
    """Read, check, merge and split a raw file; without a database the reference SQL is not run.

    Raises UserError when the file or the database is unusable, no row is good, or meta.split leaks.
    """
    parsed = parse_file(raw)
    wrong = [(line, _wrong_split(question)) for line, question in parsed.rows]
    bad = parsed.bad + [BadRow(line, reason) for line, reason in wrong if reason]
    refused = {row.row for row in bad}
    rows = [(line, question) for line, question in parsed.rows if line not in refused]
    if not rows:
        reasons = first_of([f"row {row.row}: {row.reason}" for row in bad])
        raise UserError("\n  ".join([f"{raw}: none of {len(bad)} rows is a question:", *reasons]))
    items = make_items(rows)
    check_leaks(items)
    merged, conflicts = merge_duplicates(items)
    splits, warnings = assign(merged, val_share=val_share, test_share=test_share, seed=seed)
    return Imported(
        splits=splits,
        bad=sorted(bad, key=lambda row: row.row),
        n_merged=len(items) - len(merged),
        conflicts=conflicts,
        failing_sql=check_sql(database, merged) if database else [],
        n_sql=sum(len(item.question.sql) for item in merged) if database else 0,
        n_without_answer=sum(not item.question.answer for item in merged),
        warnings=warnings,
    )


def write_splits(imported: Imported, out: Path) -> list[Path]:
    """Write train, val and test.parquet below `out` and return their paths."""
    for split in SPLITS:
        write_parquet(imported.questions(split), out / f"{split}.parquet")
    return [out / f"{split}.parquet" for split in SPLITS]


def merge_duplicates(items: list[Item]) -> tuple[list[Item], list[BadRow]]:
    """One item per exact question text: the first one, with the evidence of all; also returns differing answers."""
    merged: dict[str, Item] = {}
    conflicts: list[BadRow] = []
    for item in items:
        text = item.question.question.strip()
        first = merged.get(text)
        if first is None:
            merged[text] = item
            continue
        old, new = first.question, item.question
        if old.answer and new.answer and old.answer != new.answer:
            conflicts.append(BadRow(item.line, f"same question as row {first.line} with another answer; dropped"))
        evidence = old.evidence + [piece for piece in new.evidence if piece not in old.evidence]
        question = old.model_copy(update={"evidence": evidence, "answer": old.answer or new.answer})
        merged[text] = Item(first.line, question, first.keys | item.keys)
    return list(merged.values()), conflicts


def check_sql(database: Path, items: list[Item]) -> list[BadRow]:
    """The reference queries that fail or return nothing, by line. Raises UserError when the database is unusable."""
    if not database.is_file():
        raise UserError(f"{database}: no such database file; --database names an existing SQLite file")
    failing: list[BadRow] = []
    try:
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as db:
            db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            db.set_authorizer(_authorize)
            for item in items:
                reasons = [reason for sql in item.question.sql if (reason := _sql_problem(db, sql))]
                failing.extend(BadRow(item.line, reason) for reason in reasons)
    except sqlite3.DatabaseError as exc:
        raise UserError(f"{database}: {exc}; name a whole SQLite file that no process has locked") from exc
    return failing


def _sql_problem(db: sqlite3.Connection, sql: str) -> str:
    """Why a query is no reference, or an empty text."""
    deadline_s = time.monotonic() + SQL_TIMEOUT_S
    db.set_progress_handler(lambda: time.monotonic() > deadline_s, STEPS_BETWEEN_CHECKS)
    try:
        with closing(db.execute(sql)) as cursor:
            has_rows = any(cell is not None for row in cursor.fetchmany(SHOWN_ROWS) for cell in row)
    except (sqlite3.Error, sqlite3.Warning, ValueError) as exc:
        return f"{exc}: {sql:.200}"
    return "" if has_rows else f"returns nothing: {sql:.200}"


def _authorize(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in ALLOWED else sqlite3.SQLITE_DENY


def _wrong_split(question: Question) -> str:
    split = question.meta.get("split")
    return "" if split is None or split in SPLITS else f"meta.split is {split!r}; it must be one of {', '.join(SPLITS)}"
