"""Questions on disk: parquet, jsonl or csv in, validated `Question` rows out, and back.

Guarantees: every row that comes out has a text id that is unique in its file and a non-empty question; every error
names the file and the row (parquet rows and jsonl lines count from 1); nothing but plain Python values gets through.
Accepted: this project's parquet, a user's parquet with question and perhaps id and answer, the raw qa jsonl (qid,
ground_truth), and AgentCPM's task files (query). Where no row has an id, rows are called row-1, row-2 ...
Not covered: splitting and the repair of raw files, see `sql_agent.data.import_raw`.
"""

from __future__ import annotations

import csv
import json
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError
from rapidfuzz import fuzz, process

from foundation.errors import UserError, first_of
from foundation.files import BadLine, atomic_path, decode_line, fingerprint, numbered_lines
from sql_agent.config.data import QUESTION_FILES, FileConfig
from sql_agent.config.paths import data_path, existing_file
from sql_agent.records import Question

logger = logging.getLogger(__name__)

COLUMNS = [
    *("id", "qid", "question", "answer", "scorer", "agent", "answer_schema", "task_type", "db_id", "sql"),
    *("evidence", "meta"),
]
NESTED = ("sql", "evidence", "meta")
SYNONYMS = {"qid": "id", "query": "question", "ground_truth": "answer"}
EVIDENCE_KEYS = ("source_table", "row_id", "field", "quote")
SHOWN_ROWS = 10
NO_TEXT = "; it must be a text: put it in quotes (a column of numbers: cast it to text)"


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be a question: its number in the file (from 1), and why."""

    row: int
    reason: str


@dataclass(frozen=True)
class Parsed:
    """Of a file: questions with their row numbers, rows that are none, and "3 and 7" for two that contradict."""

    rows: list[tuple[int, Question]]
    bad: list[BadRow]
    contradictions: list[str]


def load_questions(path: str | Path) -> list[Question]:
    """All questions of a file, in order. Raises UserError as `numbered_questions` does."""
    return [question for _, question in numbered_questions(path)]


def numbered_questions(path: str | Path) -> list[tuple[int, Question]]:
    """The same with the numbers of their rows, from 1.

    Raises UserError when the file is missing, empty or broken, or when any row is bad; the text lists row numbers.
    """
    parsed = parse_file(path)
    if parsed.bad:
        problems = first_of([f"row {bad.row}: {bad.reason}" for bad in parsed.bad])
        raise UserError("\n  ".join([f"{path}: bad rows ({len(parsed.bad)}); mend or remove them:", *problems]))
    if pairs := parsed.contradictions:
        warning = "%s: %d rows ask what an earlier row asks, with another answer (rows %s). Keep one of each"
        logger.warning(warning, path, len(pairs), ", ".join(first_of(pairs)))
    return parsed.rows


def load_files(files: Sequence[FileConfig], *, key: str = "") -> list[list[Question]]:
    """The questions of each file that a `key` names. An id that an earlier file has gets its file's number: `q7@2`.

    Raises UserError.
    """
    ids: set[str] = set()
    parts: list[list[Question]] = []
    for number, entry in enumerate(files):
        rows: list[Question] = []
        for question in load_questions(existing_file(data_path(entry.file), key=key)):
            name = f"{question.id}@{number + 1}" if question.id in ids else question.id
            keys = {"id": name, "agent": question.agent or entry.agent, "file": number}
            rows.append(question.model_copy(update=keys))
        ids |= {question.id for question in rows}
        parts.append(rows)
    return parts


def facts_of(files: Sequence[FileConfig], questions: Sequence[Question]) -> dict[str, Any]:
    """What a summary says of the data: number and fingerprint; of several files, those of each."""
    each = [
        {**entry.model_dump(), "fingerprint": fingerprint(data_path(entry.file)), "questions": n}
        for number, entry in enumerate(files)
        for n in [sum(question.file == number for question in questions)]
    ]
    whole = {"fingerprint": " ".join(entry["fingerprint"] for entry in each), "questions": len(questions)}
    return {**whole, "files": each} if len(each) > 1 else whole


def parse_file(path: str | Path) -> Parsed:
    """Read a file and sort its rows into questions and bad rows.

    Columns that nobody reads are named in a warning. Raises UserError when the file as a whole is unusable: missing,
    empty, broken, or a needed column is not there.
    """
    path = existing_file(path)
    suffix = path.suffix.lower()
    if suffix not in QUESTION_FILES:
        raise UserError(f"{path}: {path.suffix or 'no suffix'} is not a question file; use {', '.join(QUESTION_FILES)}")
    rows = {".parquet": _read_parquet, ".csv": _read_csv}.get(suffix, _read_jsonl)(path)
    if not rows:
        raise UserError(f"{path}: the file has no rows; at least one question is needed")
    parsed = _parse_rows(_with_ids(rows))
    if unread := _unread(path, rows):
        logger.warning(
            "%s: nobody reads the column %s; reference queries belong into `sql` and all else into `meta`, and "
            "`agentgrpo data import` reads Spider and BIRD",
            *(path, ", ".join(unread)),
        )
    return parsed


def _unread(path: Path, rows: list[tuple[int, Any]]) -> list[str]:
    """Names of columns without a reader, and synonyms beside the name itself that say something else."""
    tables = [row for _, row in rows if isinstance(row, dict)]
    names = dict.fromkeys(name for row in tables for name in row)
    if path.suffix.lower() == ".parquet":
        names |= dict.fromkeys(pq.read_schema(path).names)
    beside = {
        name
        for name, other in SYNONYMS.items()
        if any(row.get(name) is not None and other in row and row[name] != row[other] for row in tables)
    }
    return [name for name in names if name in beside or not (name in COLUMNS or name in SYNONYMS)]


def _with_ids(rows: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """The rows, numbered where none of them has an id; an id in some of them is missing in the others."""
    tables = [row for _, row in rows if isinstance(row, dict)]
    if any(name in row for row in tables for name in ("id", "qid")) or any(map(_column_problem, tables)):
        return rows
    return [(number, {"id": f"row-{number}", **row} if isinstance(row, dict) else row) for number, row in rows]


def write_parquet(questions: Iterable[Question], path: str | Path) -> None:
    """Write questions with the columns COLUMNS, all of them text (nested ones as JSON), replacing `path` atomically;
    `db_id` only where a row has one.
    """
    path = Path(path)
    rows = [{**to_row(question), "qid": question.id} for question in questions]
    columns = [name for name in COLUMNS if name != "db_id" or any(row["db_id"] for row in rows)]
    table = pa.Table.from_pylist(rows, schema=pa.schema([(name, pa.string()) for name in columns]))
    with atomic_path(path) as temp:
        pq.write_table(table, temp)


def to_row(question: Question) -> dict[str, str]:
    """A flat row for agent-lightning: every value is text, nested fields are JSON text (`Question` reads them back)."""
    row = {**question.model_dump(), "file": str(question.file)}
    for name in NESTED:
        row[name] = json.dumps(row[name], ensure_ascii=False, default=str)
    return row


def _read_jsonl(path: Path) -> list[tuple[int, Any]]:
    """(line number, decoded object or BadRow) of each line."""
    rows: list[tuple[int, Any]] = []
    for number, line in numbered_lines(path):
        try:
            rows.append((number, decode_line(line)))
        except BadLine as exc:
            rows.append((number, BadRow(number, str(exc))))
    return rows


def _read_csv(path: Path) -> list[tuple[int, Any]]:
    """Rows by the names of the first line; an empty cell says nothing."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            names = list(reader.fieldnames or [""])
            rows = [(n, row) for n, row in enumerate(reader, start=1)]
    except (UnicodeDecodeError, csv.Error) as exc:
        raise UserError(f"{path}: not a CSV file of UTF-8 text ({exc}); write it again, or as .jsonl") from exc
    if mark := next((mark for mark in ";\t" if mark in names[0]), ""):
        raise UserError(f"{path}: the first line parts its names by {mark!r}; save the file with commas")
    wide = next((n for n, row in rows if None in row or None in row.values()), None)
    if wide:
        raise UserError(f"{path}: row {wide} has not as many cells as the first line has names; mend it")
    if rows and (problem := _column_problem(names)):
        raise UserError(f"{path}: {problem}")
    return [(n, {name: cell for name, cell in row.items() if cell or name in ("id", "question")}) for n, row in rows]


def _read_parquet(path: Path) -> list[tuple[int, Any]]:
    try:
        with pq.ParquetFile(path) as file:  # read_table would import pandas: 0.2 s
            table = file.read()
    except (pa.ArrowException, OSError) as exc:
        reason = str(exc).splitlines()[0]
        raise UserError(f"{path}: not a readable parquet file ({reason}); write it again") from exc
    problem = _column_problem(table.column_names)
    if problem:
        raise UserError(f"{path}: {problem}")
    names = _known(table.column_names)
    try:
        columns = [_python_values(table.column(name)) for name in names]
    except (pa.ArrowException, UnicodeDecodeError) as exc:
        raise UserError(f"{path}: a nested column holds text that is not UTF-8 ({exc}); write it again") from exc
    return [(i, dict(zip(names, cells, strict=True))) for i, cells in enumerate(zip(*columns, strict=True), start=1)]


def _python_values(column: pa.ChunkedArray) -> list[Any]:
    """Plain values; a text cell that is not UTF-8 comes as its bytes, so that the row check can name its row."""
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        return column.cast(pa.binary()).to_pylist()


def _known(names: Iterable[str]) -> list[str]:
    return [name for name in names if name in COLUMNS or name in SYNONYMS]


def _column_problem(names: Iterable[str]) -> str:
    """Why these columns cannot be questions, or an empty text. Finds renamed optional columns too.

    A name with a word more, `agent_id` for `agent`, is no slip of the pen: such a column is the user's own.
    """
    if len({*(known := _known(names))}) < len(known):
        return f"columns {', '.join(known)}: a name stands there twice; keep one of the two"
    have = {SYNONYMS.get(name, name) for name in names}
    unknown = sorted(have - set(COLUMNS))
    missing = [name for name in COLUMNS if name not in SYNONYMS and name not in have]
    for name in missing:
        slips = [column for column in unknown if name == "question" or not re.match(rf"{name}[_\-. ]", column)]
        near = process.extractOne(name, slips, scorer=fuzz.ratio, score_cutoff=75)
        if near:
            return f"there is no `{name}`, but `{near[0]}`: rename it to `{name}`"
        if name == "question":
            return _missing(name, names)
    return ""


def _missing(name: str, names: Iterable[str]) -> str:
    return f"`{name}` is missing; there is: {', '.join(names) or 'nothing'}"


def _parse_rows(rows: Iterable[tuple[int, Any]]) -> Parsed:
    good: list[tuple[int, Question]] = []
    bad: list[BadRow] = []
    first_row: dict[str, int] = {}
    asked: dict[tuple[str, ...], tuple[int, str]] = {}
    contradictions: list[str] = []
    for number, row in rows:
        outcome = row if isinstance(row, BadRow) else _parse_row(number, row)
        if isinstance(outcome, Question) and outcome.id in first_row:
            outcome = BadRow(number, f"id {outcome.id!r} is a duplicate of row {first_row[outcome.id]}")
        if isinstance(outcome, BadRow):
            bad.append(outcome)
        else:
            first_row[outcome.id] = number
            good.append((number, outcome))
            if answer := outcome.answer.strip():
                key = (outcome.question.strip(), outcome.agent, outcome.db_id)
                first, given = asked.setdefault(key, (number, answer))
                contradictions += [f"{first} and {number}"] if given != answer else []
    return Parsed(good, bad, contradictions)


def _parse_row(number: int, row: Any) -> Question | BadRow:
    if not isinstance(row, dict):
        return BadRow(number, f"expected an object with id and question, found {type(row).__name__}")
    problem = _column_problem(row) or ("" if "id" in row or "qid" in row else _missing("id", row))
    if problem:
        return BadRow(number, problem)
    try:
        return Question.model_validate(_normalise(row))
    except ValidationError as exc:
        errors = exc.errors(include_url=False)[:3]
        places = (".".join(map(str, error["loc"])) for error in errors)
        rules = (NO_TEXT if error["type"] == "string_type" else f": {error['msg']}" for error in errors)
        problems = (f"{at} is {_brief(e['input'])}{rule}" for at, e, rule in zip(places, errors, rules, strict=True))
        return BadRow(number, "; ".join(problems))
    except (ValueError, RecursionError) as exc:
        return BadRow(number, str(exc))


def _normalise(row: dict[str, Any]) -> dict[str, Any]:
    """The row under this project's names, ids as text. Raises ValueError with a reason for people."""
    # `id`, `question` and `answer` win over their synonyms when both are there, as in our own parquet.
    plain = {SYNONYMS[name]: _decoded(name, row[name]) for name in row if name in SYNONYMS}
    plain |= {name: _decoded(name, row[name]) for name in row if name in COLUMNS and name not in SYNONYMS}
    plain["id"] = _id_text(plain["id"])
    if not isinstance(plain["question"], str) or not plain["question"].strip():
        raise ValueError(f"question is {_brief(plain['question'])}; it must be a non-empty text")
    if isinstance(plain.get("sql"), str):
        plain["sql"] = _sql_list(plain["sql"])
    plain["evidence"] = _plain_evidence(plain.get("evidence"))
    for name, value in plain.items():
        _check_encodable(name, value)
    return plain


def _decoded(name: str, value: Any) -> Any:
    """Bytes as UTF-8 text, everything else unchanged."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise ValueError(f"{name} is not UTF-8 at byte {exc.start + 1}") from None


def _id_text(value: Any) -> str:
    """Whole numbers become text; a float (what pandas makes of ids next to a null) is refused, as 1 and 1.0 differ."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise ValueError(f"id is {_brief(value)}; it must be a non-empty text or a whole number")


def _sql_list(text: str) -> Any:
    """Reference queries from a text column: a JSON list, or one plain query."""
    if text.lstrip().startswith("["):
        return json.loads(text)
    return [text] if text.strip() else []


def _plain_evidence(value: Any) -> Any:
    """Evidence with the four known keys, other keys dropped, the quote as text."""
    if isinstance(value, str):
        value = json.loads(value) if value.strip() else []
    if not isinstance(value, Sequence):
        return [] if value is None else value
    return [_plain_item(item) if isinstance(item, dict) else item for item in value]


def _plain_item(item: dict[str, Any]) -> dict[str, Any]:
    known_fields = {key: item[key] for key in EVIDENCE_KEYS if key in item}
    if not isinstance(known_fields.get("quote", ""), str):
        known_fields["quote"] = "" if known_fields["quote"] is None else str(known_fields["quote"])
    return known_fields


def _check_encodable(name: str, value: Any) -> None:
    """Refuse what cannot be written again: JSON may hold half of a surrogate pair, UTF-8 may not."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{name} holds a lone surrogate; write the text again as UTF-8") from None


def _brief(value: Any) -> str:
    return "null" if value is None else f"{value!r:.60}"
