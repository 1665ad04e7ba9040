"""YAML sources -> the SQLite file with the tables drugs_info and disease.

Guarantees: the sources are validated as a whole first (fields, types, separators, names that could be confused), the
same sources give a byte-identical file (with one SQLite version), and the file appears at once or not at all.
Not covered: whether the facts are true; see README.md. Columns that belong to one marketed product (barcode, approval
numbers, shelf life) are NULL, because they are not invented.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from foundation.errors import UserError
from foundation.files import atomic_path

SEPARATOR = "；"
FORBIDDEN = ("；", ";", "\n", "\r", "\t")
FIXED_TIME = "2026-01-01 00:00:00"

DRUG_COLUMNS = [
    *("id", "med_name", "med_name_initial", "med_barcode", "med_approval", "component", "form", "dosage"),
    *("indication", "adverse_reactions", "contraindications", "precautions", "company_name", "description"),
    *("mechanism_action", "cate_name", "drug_interactions", "storage", "pack", "period", "approve_code", "status"),
    "created_at",
]
DISEASE_COLUMNS = [
    *("id", "disease_name", "overview", "clinical_manif", "complication", "epidemiology", "examination", "treatment"),
    *("cause", "diagnosis", "differ_diag", "prevention", "prognosis", "create_at", "update_at"),
]
SQL_TYPES = {"id": "INTEGER PRIMARY KEY", "status": "INTEGER"}

# Filled here and not in the sources; the others are lists of facts in the sources, unless TableSpec.texts names them.
GENERATED = frozenset({"id", "med_name_initial", "status", "created_at", "create_at", "update_at"})
UNKNOWN = frozenset({"med_barcode", "med_approval", "period", "approve_code"})


@dataclass(frozen=True)
class TableSpec:
    """How one folder of sources becomes one table."""

    table: str
    folder: str
    name: str
    columns: list[str]
    texts: frozenset[str]
    nullable: frozenset[str] = frozenset()

    @property
    def lists(self) -> frozenset[str]:
        """The fields that are lists of facts in the sources."""
        return frozenset(self.columns) - self.texts - GENERATED - UNKNOWN


DRUGS = TableSpec(
    table="drugs_info",
    folder="drugs",
    name="med_name",
    columns=DRUG_COLUMNS,
    texts=frozenset({"med_name", "component", "mechanism_action", "description", "cate_name", "pack", "company_name"}),
    nullable=frozenset({"company_name"}),
)
DISEASES = TableSpec(
    table="disease",
    folder="diseases",
    name="disease_name",
    columns=DISEASE_COLUMNS,
    texts=frozenset({"disease_name", "overview", "epidemiology", "prognosis"}),
)
TABLES = (DRUGS, DISEASES)


@dataclass(frozen=True)
class Entry:
    """One validated mapping of a source file; `where` names the file and the entry for messages."""

    where: str
    name: str
    values: dict[str, Any]


def build_database(source: Path, out: Path) -> None:
    """Write the database. Raises UserError listing every bad entry of the sources with its file."""
    entries = load_sources(source)
    with atomic_path(out) as temp, closing(sqlite3.connect(temp)) as db:
        # No journal file beside the temporary one: a killed build leaves at most one stray file.
        db.execute("PRAGMA journal_mode = MEMORY")
        for spec in TABLES:
            _fill(db, spec, entries[spec.table])
        db.commit()


def load_sources(source: Path) -> dict[str, list[Entry]]:
    """Validated entries per table, in the order of file name and position, which fixes the ids.

    Raises UserError listing every bad entry.
    """
    problems: list[str] = []
    entries = {spec.table: list(_read_folder(source / spec.folder, spec, problems)) for spec in TABLES}
    problems += _name_problems([entry for spec in TABLES for entry in entries[spec.table]])
    if problems:
        raise UserError(f"{source}: {len(problems)} problems in the sources:\n  " + "\n  ".join(problems))
    return entries


def _read_folder(folder: Path, spec: TableSpec, problems: list[str]) -> Iterator[Entry]:
    files = sorted(folder.glob("*.yaml"), key=lambda path: path.name)
    if not files:
        problems.append(f"{folder}: no *.yaml file; at least one is needed")
    for path in files:
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as exc:
            problems.append(f"{path}: not valid YAML in UTF-8 ({' '.join(str(exc).split())})")
            continue
        if not isinstance(content, list):
            problems.append(f"{path}: expected a list of entries, found {type(content).__name__}")
            continue
        for number, values in enumerate(content, start=1):
            yield from _check_entry(f"{path.parent.name}/{path.name} entry {number}", values, spec, problems)


def _check_entry(where: str, values: Any, spec: TableSpec, problems: list[str]) -> Iterator[Entry]:
    if not isinstance(values, dict):
        problems.append(f"{where}: expected a mapping, found {type(values).__name__}")
        return
    name = values.get(spec.name)
    where = f"{where} ({name})"
    expected = spec.lists | spec.texts
    problems.extend(f"{where}: {field} is missing" for field in sorted(expected - values.keys()))
    unknown = sorted(map(str, values.keys() - expected))
    problems.extend(f"{where}: {field} is unknown; fields are {', '.join(sorted(expected))}" for field in unknown)
    for field in sorted(expected & values.keys()):
        problems.extend(f"{where}: {field} {reason}" for reason in _field_problems(values[field], field, spec))
    if isinstance(name, str):
        yield Entry(where, name, values)


def _field_problems(value: Any, field: str, spec: TableSpec) -> Iterator[str]:
    if value is None and field in spec.nullable:
        return
    items = value if field in spec.lists else [value]
    if not isinstance(items, list) or not items:
        yield f"is {value!r}; it must be a list with at least one item"
        return
    texts = [item for item in items if isinstance(item, str) and item.strip() and item == item.strip()]
    yield from (f"holds {item!r}; every item must be a trimmed, quoted text" for item in items if item not in texts)
    split = [text for text in texts if any(mark in text for mark in FORBIDDEN)]
    yield from (f"holds {text!r}; {SEPARATOR} ; tab and line break separate items" for text in split)
    yield from (f"repeats {text!r}" for text in sorted({text for text in texts if texts.count(text) > 1}))


def _name_problems(entries: list[Entry]) -> Iterator[str]:
    """Names that a LIKE query or a reader could confuse, within and across the tables."""
    for one, other in combinations(entries, 2):
        short, long = sorted((one, other), key=lambda entry: len(entry.name))
        if one.name == other.name:
            yield f"{other.where}: the name is a duplicate of {one.where}"
        elif short.name in long.name:
            yield f"{short.where}: the name is a part of {long.name!r} in {long.where}; rename or drop one"


def _fill(db: sqlite3.Connection, spec: TableSpec, entries: list[Entry]) -> None:
    columns = ", ".join(f"{column} {SQL_TYPES.get(column, 'TEXT')}" for column in spec.columns)
    db.execute(f"CREATE TABLE {spec.table} ({columns})")
    marks = ", ".join("?" for _ in spec.columns)
    rows = [[_cell(column, number, entry) for column in spec.columns] for number, entry in enumerate(entries, start=1)]
    db.executemany(f"INSERT INTO {spec.table} VALUES ({marks})", rows)


def _cell(column: str, number: int, entry: Entry) -> Any:
    match column:
        case "id":
            return number
        case "status":
            return 1
        case "created_at" | "create_at" | "update_at":
            return FIXED_TIME
        case "med_name_initial":
            # Imported here: it takes a fifth of a second, and readers of the records do not need it.
            from pypinyin import Style, lazy_pinyin

            return "".join(lazy_pinyin(entry.name, style=Style.FIRST_LETTER)).upper()
    value = entry.values.get(column)
    return SEPARATOR.join(value) if isinstance(value, list) else value
