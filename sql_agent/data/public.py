"""Spider and BIRD as they come -> train, val and test.parquet, and a configuration that reads their databases.

Guarantees: no database is in two splits: the published dev questions are test, whole; of the training questions whole
databases are held out as val, and those about a database of dev are left out. Training rows are graded by `sql_result`,
the others by the public rule, so that figures compare. Training rows whose reference fails, or finds nothing, are left
out with their reason. Not covered: the hidden test sets; questions of several turns.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from foundation.errors import UserError
from foundation.files import BadLine, decode_line, write_text
from foundation.grouping import grouped
from sql_agent.data.dataset import BadRow, write_parquet
from sql_agent.data.import_raw import check_sql
from sql_agent.data.splits import Item, assign
from sql_agent.data.templates import SPLITS, Split
from sql_agent.records import Question

VAL_SHARE, TEST_SHARE = 0.1, 0.1


def _spider(row: dict[str, Any]) -> dict[str, Any]:
    return {"question": row["question"], "sql": [row["query"]], "task_type": "spider"}


def _bird(row: dict[str, Any]) -> dict[str, Any]:
    """The hint is a part of the question, as in the published setting with evidence."""
    hint, level = str(row.get("evidence") or "").strip(), str(row.get("difficulty") or "")
    text = f"{row['question']}\nHint: {hint}" if hint else row["question"]
    return {"question": text, "sql": [row["SQL"]], "task_type": level or "bird", "meta": {"evidence": hint}}


@dataclass(frozen=True)
class Layout:
    """Names of a published folder: question files, their folders of databases, and what a row says."""

    train: tuple[str, ...]
    databases: dict[Split, str]
    row: Callable[[dict[str, Any]], dict[str, Any]]


LAYOUTS = {
    "spider": Layout(("train_spider.json", "train_others.json"), {"train": "database", "test": "database"}, _spider),
    "bird": Layout(("train.json",), {"train": "train_databases", "test": "dev_databases"}, _bird),
}
DEV = "dev.json"


@dataclass
class PublicDataset:
    """What a folder held: rows by split, where their databases are, and what was left out."""

    name: str
    splits: dict[Split, list[Question]] = field(default_factory=dict)
    folders: dict[Split, Path] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_public(
    name: str, folder: Path, *, val_share: float = VAL_SHARE, test_share: float = TEST_SHARE, seed: int = 1
) -> PublicDataset:
    """The questions of a published folder, split; `test_share` counts where there are no dev questions beside training
    ones. Raises UserError where it has not the layout.
    """
    layout, dataset = LAYOUTS[name], PublicDataset(name)
    dev = _items(name, layout, folder, "test", (DEV,), dataset)
    train = _items(name, layout, folder, "train", layout.train, dataset)
    if not dev and not train:
        raise UserError(f"{folder}: no question in {', '.join((*layout.train, DEV))}, there or one folder below it")
    if dev and train:
        if test_share != TEST_SHARE:
            raise UserError(f"--test-share {test_share:g}: {DEV} is the test split of {folder}; leave it out")
        dev_databases = {item.question.db_id for item in dev}
        test_share = 0.0
        pool = [item for item in train if item.question.db_id not in dev_databases]
        if n := len(train) - len(pool):
            dataset.left_out.append(f"{n} training questions about databases of {DEV}")
    else:
        pool = train or dev
    bad = _failing(pool, dataset.folders["train" if train else "test"])
    dataset.left_out += [f"question {line}: {reason}" for line, reason in sorted(bad.items())]
    sound = [item for item in pool if item.line not in bad]
    splits, dataset.warnings = assign(sound, val_share=val_share, test_share=test_share, seed=seed)
    if not splits["train"]:
        why = "; ".join(dataset.left_out[:3]) or "whole databases are held out, and there are too few"
        raise UserError(f"{folder}: no question is left to train on ({why})")
    if dev and train:
        splits["test"] = dev
    else:  # one file, from one folder
        dataset.folders = dict.fromkeys(("train", "test"), next(iter(dataset.folders.values())))
    for split in SPLITS:
        scorer = "sql_result" if split == "train" else f"{name}_execution"
        dataset.splits[split] = [
            item.question.model_copy(update={"scorer": scorer, "meta": {**item.question.meta, "split": split}})
            for item in splits[split]
        ]
    return dataset


def _items(
    name: str, layout: Layout, folder: Path, split: Split, files: tuple[str, ...], dataset: PublicDataset
) -> list[Item]:
    items: list[Item] = []
    for file in files:
        places = (folder / file, *sorted(folder.glob(f"*/{file}")))
        path = next(filter(Path.is_file, places), None)
        if path is None:
            continue
        dataset.folders[split] = _databases(path, layout.databases[split])
        for n, row in enumerate(_rows(path), start=1):
            try:
                fields = layout.row(row)
                db_id = str(row["db_id"])
                question = Question(id=f"{name}-{path.stem}-{n:05d}", db_id=db_id, **fields)
            except KeyError as exc:
                raise UserError(f"{path}: row {n}: {exc} is missing; this is not the layout of {name}") from exc
            except ValidationError as exc:
                error = exc.errors(include_url=False)[0]
                where = f"{error['loc'][0]} is {error['input']!r:.60}"
                raise UserError(f"{path}: row {n}: {where}: {error['msg']}; mend it, or take it out") from exc
            items.append(Item(len(items) + 1, question, frozenset({("database", db_id)})))
    return items


def _databases(file: Path, name: str) -> Path:
    """The folder of databases beside a question file. Raises UserError."""
    for candidate in (file.parent / name, file.parent / name / name):
        if next(candidate.glob("*/*.sqlite"), None):
            return candidate.resolve()
    raise UserError(f"{file.parent / name}: no ID/ID.sqlite there; {file.name} asks about these databases")


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        rows = decode_line(path.read_bytes())
    except BadLine as exc:
        raise UserError(f"{path}: {exc}; a list of objects in UTF-8 is needed") from exc
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: a list of objects is needed, one a question")
    return rows


def _failing(items: list[Item], folder: Path) -> dict[int, str]:
    """Line -> why its reference query is none."""
    bad: list[BadRow] = []
    there = {path.parent.name: path for path in folder.glob("*/*.sqlite") if path.stem == path.parent.name}
    for db_id, queries in grouped(items, lambda item: item.question.db_id).items():
        if (path := there.get(db_id)) and path.resolve().is_relative_to(folder) and path.is_file():
            bad += check_sql(path, queries)
        else:
            bad += [BadRow(query.line, f"no file {folder}/ID/ID.sqlite of {db_id!r:.80}") for query in queries]
    return {problem.row: problem.reason for problem in bad}


def write_public(dataset: PublicDataset, out: Path) -> list[Path]:
    """Write the three files and config.toml, and return their paths."""
    for split in SPLITS:
        write_parquet(dataset.splits[split], out / f"{split}.parquet")
    write_text(out / "config.toml", _config(dataset))
    return [*(out / f"{split}.parquet" for split in SPLITS), out / "config.toml"]


def _config(dataset: PublicDataset) -> str:
    folders = {split: json.dumps(str(path), ensure_ascii=False) for split, path in dataset.folders.items()}
    note = f"# test.parquet has databases of its own: --set database.folder={folders['test']}\n"
    return (
        f"# Made by `agentgrpo data import {dataset.name}`.\n{note if folders['test'] != folders['train'] else ''}"
        f"[database]\nfolder = {folders['train']}\n\n"
        '[agent]\ntools = ["sql"]  # add "schema" for list_tables, describe_table and sample_values\n'
        'system_prompt = "generic_en"\n'
        'tool_description = "Run one read-only SELECT on the SQLite database; returns JSON."\n\n'
        '[data]\ntrain_file = "train.parquet"\nval_file = "val.parquet"\n\n'
        '[reward]\ndefault_scorer = "sql_result"\n'
    )
