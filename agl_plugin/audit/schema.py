"""The tables of audit.db, how values are packed in them, and how a file is opened for reading.

Guarantees: rows are added and never changed; each belongs to an entry of `ledger`, which holds the SHA-256 of all rows
that one transaction added to one table, of their step, and of the entry before it, so that any changed value shows.
Token ids are unsigned 32-bit integers, log-probabilities 32-bit floats (NaN: none given), masks one byte per token; all
of these little-endian and compressed with zlib. Of a call's prompt `prompt_ids` has what comes after its first
`n_shared` tokens, which are those that call number `follows` of the attempt saw and sampled. Files from version 3 on
can be read. Against damage, not against forgery: who may write the file may also write a new ledger. Light to import.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import zlib
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from foundation import run_folder
from foundation.errors import UserError
from foundation.files import writable

VERSION = 4  # PRAGMA user_version
READ = (3, VERSION)  # 3: prompts are whole
MAX_TEXT_CHARS = 16_384
Row = dict[str, Any]
Rows = dict[str, list[Row]]  # table -> rows

TABLES: dict[str, str] = {
    "run": "id TEXT PRIMARY KEY, started_s REAL, settings TEXT",
    "question": "id TEXT PRIMARY KEY, run_id TEXT, name TEXT, question TEXT, reference TEXT, task_type TEXT",
    "rollout": "id TEXT PRIMARY KEY, question_id TEXT, agent TEXT, step INTEGER, mode TEXT, group_id TEXT, "
    "resampled INTEGER, status TEXT, attempt_id TEXT, answer TEXT, stop_reason TEXT, n_calls INTEGER",
    "attempt": "id TEXT PRIMARY KEY, rollout_id TEXT, n INTEGER, status TEXT, worker TEXT, started_s REAL, "
    "ended_s REAL",
    "llm_call": "id TEXT PRIMARY KEY, attempt_id TEXT, n INTEGER, response_id TEXT, weights_version INTEGER, "
    "finish_reason TEXT, started_s REAL, ended_s REAL, n_prompt INTEGER, n_sampled INTEGER, prompt_ids BLOB, "
    "sampled_ids BLOB, log_probs BLOB, follows INTEGER, n_shared INTEGER",
    "tool_call": "id TEXT PRIMARY KEY, rollout_id TEXT, n INTEGER, turn INTEGER, name TEXT, arguments TEXT, "
    "result TEXT, n_rows INTEGER, outcome TEXT, error TEXT, seconds REAL",
    "verdict": "rollout_id TEXT PRIMARY KEY, reward REAL, unscored TEXT, judge TEXT, parts TEXT, reason TEXT, "
    "usage TEXT",
    "train_row": "id TEXT PRIMARY KEY, rollout_id TEXT, step INTEGER, row_number INTEGER, apart TEXT, "
    "n_prompt INTEGER, n_response INTEGER, n_trained INTEGER, prompt_ids BLOB, response_ids BLOB, mask BLOB, "
    "advantage REAL, used INTEGER, why_not TEXT, optimizer_step INTEGER, update_id TEXT",
    "left_out": "rollout_id TEXT PRIMARY KEY, step INTEGER, why TEXT",
    "policy_update": "id TEXT PRIMARY KEY, run_id TEXT, step INTEGER, loss REAL, grad_norm REAL, grad_norms TEXT, "
    "lr REAL, weights_before TEXT, weights_after TEXT, n_rollouts INTEGER, n_rows INTEGER, n_used INTEGER, "
    "n_tokens INTEGER, metrics TEXT",
    "checkpoint": "id TEXT PRIMARY KEY, update_id TEXT, path TEXT",
    "update_state": "id TEXT PRIMARY KEY, settings TEXT, weights_before BLOB, weights_after BLOB, exp_avg BLOB, "
    "exp_avg_sq BLOB",
}  # fmt: skip
LEDGER = 'n INTEGER PRIMARY KEY, "table" TEXT, step INTEGER, first INTEGER, last INTEGER, sha256 TEXT'
INDICES = (
    "rollout (step, mode)", "rollout (question_id)", "rollout (group_id)", "rollout (agent)",
    "question (name)", "attempt (rollout_id)",
    "llm_call (attempt_id)", "tool_call (rollout_id)", "tool_call (outcome)", "verdict (reward)", "verdict (unscored)",
    "train_row (rollout_id)", "train_row (step, row_number)", "left_out (step)", "policy_update (step)",
    "checkpoint (update_id)",
)  # fmt: skip

COLUMNS = {
    table: [(name, kind) for name, kind, *_ in (column.split() for column in columns.split(", "))]
    for table, columns in TABLES.items()
}


def make(connection: sqlite3.Connection) -> None:
    for table, columns in {**TABLES, "ledger": LEDGER}.items():
        connection.execute(f'CREATE TABLE "{table}" ({columns})')
    for n, index in enumerate(INDICES):
        connection.execute(f"CREATE INDEX index_{n} ON {index}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def text(value: Any, *, limit: int = MAX_TEXT_CHARS) -> str:
    """A text as the file takes it: without lone surrogates, cut with a note; other values as JSON."""
    whole = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    shown = whole if len(whole) <= limit else f"{whole[:limit]}… (+{len(whole) - limit} characters)"
    return writable(shown)


def _typed(value: Any, kind: str) -> Any:
    if value is None or kind == "BLOB":
        return value
    if kind == "TEXT":
        return text(value, limit=sys.maxsize)
    number = float(value) if kind == "REAL" else int(value)
    return None if number != number else number


def pack(numbers: Any, kind: str = "I") -> bytes:
    """Numbers as a blob; `kind` as in module array: I token ids, f log-probabilities, B mask."""
    return zlib.compress(array(kind, numbers).tobytes(), 1)


def unpack(blob: bytes | None, kind: str = "I") -> list[Any]:
    """The numbers of a blob; [] for none. Raises ValueError for a damaged one."""
    if blob is None:
        return []
    numbers: array[Any] = array(kind)
    try:
        numbers.frombytes(zlib.decompress(blob))
    except zlib.error as exc:
        raise ValueError(f"a blob is damaged: {exc}") from exc
    return numbers.tolist()


def version_of(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def digest(previous: str, table: str, rows: Iterable[Sequence[Any]], *, step: int) -> str:
    """The ledger's hash of an entry: the one before, table and step, and the values of all columns of its rows."""
    hashed = hashlib.sha256(f"{previous} {table} {step}\n".encode())
    for row in rows:
        hashed.update(repr(tuple(row)).encode())
    return hashed.hexdigest()


def add(connection: sqlite3.Connection, rows: Rows, *, step: int) -> None:
    """Add rows to their tables and to the ledger; a row whose key is there already is left as it is."""
    for table, added in rows.items():
        columns = COLUMNS[table]
        places = ", ".join("?" * len(columns))
        typed = [tuple(_typed(row.get(name), kind) for name, kind in columns) for row in added]
        (before,) = connection.execute(f"SELECT ifnull(max(rowid), 0) FROM {table}").fetchone()
        connection.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({places})", typed)
        (after,) = connection.execute(f"SELECT ifnull(max(rowid), 0) FROM {table}").fetchone()
        if after == before:
            continue
        stored = typed if after - before == len(typed) else rows_between(connection, table, before + 1, after)
        last = connection.execute("SELECT sha256 FROM ledger ORDER BY n DESC LIMIT 1").fetchone()
        hashed = digest(last[0] if last else "", table, stored, step=step)
        entry = (table, step, before + 1, after, hashed)
        connection.execute('INSERT INTO ledger ("table", step, first, last, sha256) VALUES (?, ?, ?, ?, ?)', entry)


def rows_between(
    connection: sqlite3.Connection, table: str, first: int, last: int, *, version: int = VERSION
) -> Iterable[tuple[Any, ...]]:
    columns = [name for name, _ in COLUMNS[table] if version > 3 or name not in ("follows", "n_shared")]
    names = ", ".join(f'"{name}"' for name in columns)
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(
        f"SELECT {names} FROM {table} WHERE rowid BETWEEN ? AND ? ORDER BY rowid", (first, last)
    )  # fmt: skip


def audit_file(run: Path) -> Path:
    """The file of a run, which is named by its folder or by the file. Raises UserError."""
    path = run / run_folder.AUDIT if run.is_dir() else run
    if not path.is_file():
        raise UserError(
            f"{path}: no audit file. Name a run folder that holds {run_folder.AUDIT}; runs with logging.audit = false "
            "have none"
        )
    return path


def opened(run: Path) -> sqlite3.Connection:
    """The audit file for reading alone; rows are read by name. Raises UserError."""
    path = audit_file(run)
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        version = version_of(connection)
    except sqlite3.DatabaseError as exc:
        connection.close()
        raise UserError(f"{path}: no audit file ({exc})") from exc
    if version not in READ:
        connection.close()
        raise UserError(f"{path}: of version {version}, and this reads {READ}: use the code that wrote it")
    return connection


def stored_calls(connection: sqlite3.Connection, attempt: str) -> list[tuple[sqlite3.Row, list[int]]]:
    """The rows of an attempt's calls in order, and the prompt of each. Raises ValueError for one that cannot be had."""
    rows = connection.execute("SELECT * FROM llm_call WHERE attempt_id = ? ORDER BY n", (attempt,)).fetchall()
    waiting = {row["n"]: row for row in rows}
    whole = dict[int, tuple[list[int], list[int]]]()
    while waiting:
        before = len(waiting)
        for n, row in list(waiting.items()):
            follows = row["follows"] if "follows" in row.keys() else None  # noqa: SIM118
            if follows is not None and follows not in whole:
                continue
            shared = [] if follows is None else sum(whole[follows], start=[])[: row["n_shared"]]
            prompt = shared + unpack(waiting.pop(n)["prompt_ids"])
            whole[n] = prompt, unpack(row["sampled_ids"])
            if len(prompt) != row["n_prompt"]:
                raise ValueError(f"{row['id']}: {len(prompt)} tokens in its prompt, and it saw {row['n_prompt']}")
        if len(waiting) == before:
            raise ValueError(f"{attempt}: calls {sorted(waiting)} go on from calls that are not there")
    return [(row, whole[row["n"]][0]) for row in rows]
