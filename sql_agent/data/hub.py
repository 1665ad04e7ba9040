"""Data sets of the Hugging Face hub by name: a copy that lies here, or the hub.

    gsm8k          openai/gsm8k
    OWNER/NAME

A copy is a folder of the set's name (gsm8k/, openai/gsm8k/), where paths are looked for, that holds SPLIT.jsonl or
SPLIT.parquet, or as the hub has it SPLIT-*.parquet, there or in main/.
Guarantees: a copy and the hub give the same rows; without either the error says what to fetch and where to put it.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from foundation.errors import UserError
from foundation.files import BadLine, decode_line, numbered_lines
from sql_agent.config import ROOT, resolve_path

Row = dict[str, Any]
HUB = {"gsm8k": ("openai/gsm8k", "main")}


def is_hub_name(text: str) -> bool:
    """Whether a data set's name is one of the hub, and no file."""
    is_path = bool(Path(text).suffix) or text.startswith((".", "/", "~")) or resolve_path(text).is_file()
    return text in HUB or (text.count("/") == 1 and not is_path)


def local_copy(name: str, split: str) -> list[Path]:
    """The files of a split in a folder of this name; none without such a folder."""
    folder = resolve_path(name, ROOT / "sql_agent", ROOT)
    for pattern in (f"{split}.jsonl", f"{split}.parquet", f"{split}-*.parquet", f"main/{split}-*.parquet"):
        if files := sorted(folder.glob(pattern)):
            return files
    return []


def hub_rows(name: str, split: str) -> list[Row]:
    """The rows of a split, from a copy or from the hub. Raises UserError."""
    if copy := local_copy(name, split):
        return [row for file in copy for row in rows_of(file)]
    path, part = HUB.get(name, (name, None))
    try:
        import datasets
    except ModuleNotFoundError:
        raise UserError(f"dataset {name!r}: the package datasets is not installed. {_remedy(name, split)}") from None
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)  # it tells each retry twice; the error says it all
    try:
        return [dict(row) for row in datasets.load_dataset(path, part, split=split)]
    except Exception as exc:  # a library of others: network, cache, names
        why = f"{type(exc).__name__}: {' '.join(str(exc).split())[:200]}"
        raise UserError(
            f"dataset {name!r}: neither a file or folder here, nor to be had from the hub as {path} ({why}). Check the "
            f"spelling and the network. {_remedy(name, split)}"
        ) from exc


def _remedy(name: str, split: str) -> str:
    return (
        f"Without the network: fetch its files elsewhere, and put them at {Path.cwd() / name / split}.jsonl (or "
        ".parquet), or give the path of a file in place of the name"
    )


def rows_of(file: Path) -> list[Row]:
    """The rows of a file, whatever they are of. Raises UserError."""
    try:
        if file.suffix == ".parquet":
            import pyarrow.parquet

            return pyarrow.parquet.read_table(file).to_pylist()
        rows = [decode_line(line) for _, line in numbered_lines(file)]
    except (BadLine, OSError, ValueError) as exc:  # pyarrow's errors are among them
        raise UserError(f"{file}: cannot be read ({' '.join(str(exc).split())[:200]}); fetch it again") from exc
    if any(not isinstance(row, dict) for row in rows):
        raise UserError(f"{file}: holds a line that is no JSON object; fetch it again")
    return rows
