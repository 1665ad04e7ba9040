"""The command that makes the questions: `python -m sql_agent.data.build`.

Guarantees: without options, the bundled sources become medical.db, qa_dataset.jsonl and the parquet files, and
nothing is done when a stamp shows that they are up to date; with --raw, a user's file goes through the same checks.
Not covered: what is checked and how rows are split, see import_raw.py and splits.py.
"""

from __future__ import annotations

import hashlib
import shlex
import sqlite3
import tempfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from foundation.console import Heartbeat
from foundation.errors import UserError, first_of
from foundation.files import fingerprint, read_object, refuse_input, write_json
from sql_agent.data.build_database import build_database
from sql_agent.data.dataset import SHOWN_ROWS, BadRow, write_parquet
from sql_agent.data.import_raw import Imported, import_raw, write_splits
from sql_agent.data.public import LAYOUTS, read_public, write_public
from sql_agent.data.questions import make_entity_questions, make_questions, write_raw
from sql_agent.data.templates import SPLITS, TEMPLATES, load_templates

DATA = Path(__file__).resolve().parent
SOURCE = DATA / "source"
ENTITIES = "test_entities.parquet"
OUTPUTS = ("medical.db", "qa_dataset.jsonl", "train.parquet", "val.parquet", "test.parquet", ENTITIES)
STAMP = "build.stamp"
SPLIT = (0.1, 0.1, 1)  # of own rows: share for validation, share for the test, seed

console = Console(soft_wrap=True)


def build_bundled(out: Path = DATA, *, force: bool = False) -> Imported | None:
    """Make the bundled database and questions in `out`; None when they are up to date.

    A file that would be the same stays: a run that reads a database which is replaced ends. Raises UserError when the
    sources or templates are faulty.
    """
    inputs = _inputs_fingerprint()
    if not force and _is_current(out, inputs):
        return None
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=out) as name:
        made = Path(name)
        imported = _build(made)
        stamp = _stamp(made, inputs)
        for output, digest in stamp["outputs"].items():
            if not (out / output).is_file() or fingerprint(out / output) != digest:
                (made / output).replace(out / output)
    write_json(out / STAMP, stamp)
    return imported


def _build(folder: Path) -> Imported:
    """All OUTPUTS, in an empty folder."""
    database, raw = folder / "medical.db", folder / "qa_dataset.jsonl"
    build_database(SOURCE, database)
    write_raw(make_questions(database, load_templates()), raw)
    imported = import_raw(raw, database)
    if imported.bad or imported.failing_sql or imported.n_merged:
        raise UserError(f"{raw.name}: the bundled questions have faults: {imported.bad + imported.failing_sql}")
    write_splits(imported, folder)
    write_parquet(make_entity_questions(database, load_templates()), folder / ENTITIES)
    return imported


def _inputs_fingerprint() -> str:
    """A digest of everything the bundled files depend on: sources, templates, this code, and its writers."""
    files = [*sorted(SOURCE.rglob("*.yaml")), TEMPLATES, *sorted(DATA.glob("*.py")), DATA.parent / "records.py"]
    digest = hashlib.sha256(f"{sqlite3.sqlite_version} {version('pyarrow')} {version('pypinyin')}".encode())
    for path in files:
        digest.update(f"{path.relative_to(DATA.parent)} {fingerprint(path)}\n".encode())
    return digest.hexdigest()[:16]


def _stamp(out: Path, inputs: str) -> dict[str, Any]:
    return {"inputs": inputs, "outputs": {name: fingerprint(out / name) for name in OUTPUTS}}


def _is_current(out: Path, inputs: str) -> bool:
    try:
        return read_object(out / STAMP) == _stamp(out, inputs)
    except UserError:
        return False


def import_public(words: list[str], out: Path | None, **shares: Any) -> None:
    """`agentgrpo data import spider|bird FOLDER --out DIR`. Raises UserError."""
    if len(words) != 3 or words[0] != "import" or words[1] not in LAYOUTS or out is None:
        raise UserError(
            f"data {' '.join(words)}: expected `agentgrpo data import {'|'.join(LAYOUTS)} FOLDER --out DIR`, FOLDER as "
            "it was published"
        )
    dataset = read_public(words[1], Path(words[2]).expanduser(), **shares)
    files = write_public(dataset, out)
    for split in SPLITS:
        databases = {question.db_id for question in dataset.splits[split]}
        console.print(f"{split}: {len(dataset.splits[split])} questions about {len(databases)} databases")
    lines = first_of([f"left out: {text}" for text in dataset.left_out])
    train, test = dataset.folders["train"], dataset.folders["test"]
    folder = f" --set {shlex.quote(f'database.folder={test}')}" if test != train else ""
    recipe, held_out = (shlex.quote(str(file)) for file in (files[-1], files[2]))
    lines += [
        *(f"warning: {text}" for text in dataset.warnings),
        *map(str, files),
        f"train:    agentgrpo train --recipe {recipe} --model MODEL",
        f"evaluate: agentgrpo evaluate --recipe {recipe} --model MODEL --split {held_out} --limit 0{folder}",
    ]
    console.print("\n".join(lines), markup=False, highlight=False)


def show(imported: Imported, files: list[Path]) -> None:
    """Print what was made, and everything that was skipped or looks wrong."""
    counts = Counter(
        (item.question.task_type or "(none)", split) for split in SPLITS for item in imported.splits[split]
    )
    table = Table("task_type", *SPLITS, title="rows per split")
    for task in sorted({task for task, _ in counts}):
        table.add_row(task, *(str(counts[task, split]) for split in SPLITS))
    table.add_section()
    table.add_row("all rows", *(str(len(imported.splits[split])) for split in SPLITS))
    entities = [{key for item in imported.splits[split] for key in item.keys if key[0] == "row"} for split in SPLITS]
    table.add_row("entities", *(str(len(keys)) for keys in entities))
    console.print(table)
    _show_rows("skipped rows", imported.bad)
    _show_rows("duplicate questions with another answer", imported.conflicts)
    _show_rows("reference queries that fail or return nothing", imported.failing_sql)
    console.print(f"duplicate questions merged: {imported.n_merged}; without an answer: {imported.n_without_answer}")
    console.print(f"reference queries run: {imported.n_sql or 'none'}")
    for text in imported.warnings:
        console.print(f"warning: {text}", style="yellow", markup=False)
    for path in files:
        console.print(f"{fingerprint(path)}  {path}", markup=False, highlight=False)


def _show_rows(title: str, rows: list[BadRow]) -> None:
    shown = rows[:SHOWN_ROWS]
    more = ", ".join(str(row.row) for row in rows[SHOWN_ROWS:])
    if rows:
        console.print(f"{title}: {len(rows)}", style="yellow")
    for row in shown:
        console.print(f"  row {row.row}: {row.reason}", markup=False, highlight=False)
    if more:
        console.print(f"  and {len(rows) - SHOWN_ROWS} more, rows {more}")


def main(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[import spider|bird FOLDER]", show_default=False)
    ] = None,
    raw: Annotated[
        Path | None, typer.Option(help="your questions: .parquet, .jsonl, .csv (sql_agent/data/README.md)")
    ] = None,
    database: Annotated[Path | None, typer.Option(help="your SQLite file: reference SQL is run on it")] = None,
    out: Annotated[Path | None, typer.Option(help="folder of the results (needed with --raw)")] = None,
    val_share: Annotated[float, typer.Option(help="share of rows for validation (--raw, import)")] = SPLIT[0],
    test_share: Annotated[float, typer.Option(help="share of rows for the test (--raw, import)")] = SPLIT[1],
    seed: Annotated[int, typer.Option(help="seed of the split (--raw, import)")] = SPLIT[2],
    force: Annotated[bool, typer.Option("--force", help="build the bundled data even if it is up to date")] = False,
) -> None:
    """Make train.parquet, val.parquet and test.parquet.

    Without options, the bundled medical data: YAML sources -> medical.db -> qa_dataset.jsonl -> parquet, all below
    sql_agent/data; test_entities.parquet asks for the entities of test in the words of train. It takes
    a few seconds and is skipped when nothing has changed.

    \b
    agentgrpo data
    agentgrpo data --raw mine.jsonl --database mine.db --out DIR
    agentgrpo data import spider FOLDER --out DIR       Spider or BIRD as published; whole databases are held out

    With your own data each line needs qid and question; ground_truth,
    sql, evidence, meta and task_type are used when there. Bad lines are named and skipped. Rows that share an entity
    never end up on two sides of a split.
    """
    heartbeat = Heartbeat(console, lambda: "building the data")
    if words:
        if raw or database or force:
            raise UserError("data import: takes --out alone; leave --raw, --database and --force out")
        with heartbeat:
            return import_public(words, out, val_share=val_share, test_share=test_share, seed=seed)
    if raw is None and database is not None:
        raise UserError(f"--database {database}: only used with --raw; add --raw FILE.jsonl --out DIR")
    if raw is None and (val_share, test_share, seed) != SPLIT:
        raise UserError("--val-share, --test-share, --seed: only used with --raw or import; the bundled split is fixed")
    if raw is not None:
        if force:
            raise UserError("--force: only used for the bundled data; leave it out, --raw always builds")
        if out is None:
            raise UserError("--raw without --out: add --out DIR, a folder for the three parquet files")
        if out.exists() and not out.is_dir():
            raise UserError(f"--out {out}: is a file; name a folder for the three parquet files")
        for split in SPLITS:
            refuse_input(out / f"{split}.parquet", raw)
        with heartbeat:
            imported = import_raw(raw, database, val_share=val_share, test_share=test_share, seed=seed)
            files = write_splits(imported, out)
        return show(imported, files)
    folder = out or DATA
    with heartbeat:
        bundled = build_bundled(folder, force=force)
    if bundled is None:
        console.print(f"{folder}: up to date (--force builds again)", markup=False)
    else:
        show(bundled, [folder / name for name in OUTPUTS])


if __name__ == "__main__":
    typer.run(main)
