"""Data sets by name or path, in three forms: questions, rows for supervised tuning, rows for reinforcement learning.

Names: the bundled splits (medical), those of `register_dataset`, a question file, and names of the Hugging Face hub,
which need the package `datasets` and the network. Guarantees: rows come out as plain Python values, in the order of
their source; a registered set is written as a question file when a command needs it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

from foundation.errors import UserError, did_you_mean
from foundation.files import write_lines
from sql_agent.config import HOME, data_path
from sql_agent.config.data import QUESTION_FILES
from sql_agent.config.paths import existing_file
from sql_agent.data.bundled import SPLITS, ensure_bundled
from sql_agent.data.given import rows_of
from sql_agent.data.hub import HUB, hub_rows, is_hub_name, local_copy
from sql_agent.records import Question

Format = Literal["sft", "rl", "questions"]
# A name, a file, rows, a frame of pandas, polars or arrow, a datasets.Dataset, or columns by name.
Source = Any
BUNDLED = "medical"
QUESTION_KEYS = ("question", "prompt", "query", "problem", "instruction")
ANSWER_KEYS = ("answer", "ground_truth", "completion", "solution", "output")
TALKS = {"messages", "conversations", "conversation", "chosen", "rejected"}
_registered: dict[str, list[dict[str, Any]] | Path] = {}


def register_dataset(name: str, source: Source) -> None:
    """Call a set by a name: rows with a question and an answer, or a question file. Raises UserError."""
    if name == BUNDLED or not name or "/" in name:
        raise UserError(f"dataset name {name!r}: must be a plain word other than {BUNDLED}")
    _registered[name] = _existing(source) if isinstance(source, str | Path) else _rows(name, rows_of(source))


def _existing(path: str | Path) -> Path:
    """The question file of this path. Raises UserError."""
    ensure_bundled(str(path))
    return existing_file(data_path(str(path)))


def _written(name: str, rows: list[Any]) -> Path:
    """A file below .cache with these rows."""
    digest = hashlib.sha256(repr(rows).encode()).hexdigest()[:12]
    path = HOME / ".cache" / "api" / "datasets" / f"{name}-{digest}.jsonl"
    if not path.exists():
        write_lines(path, rows)
    return path


def load_dataset(
    name_or_path: Source = BUNDLED,
    *,
    format: Format = "questions",
    split: str = "train",
    max_samples: int | None = None,
    model: str | Path | None = None,
) -> list[dict[str, Any]]:
    """The first `max_samples` rows of a data set: a name, a file, rows or a frame.

    questions: as they stand in a question file. sft: prompt, completion, text. rl: prompt, ground_truth and the rest of
    the row. With `model` (a folder or hub name) prompts are written in its chat template. Raises UserError.
    """
    if format not in ("sft", "rl", "questions"):
        raise UserError(f"format = {format!r}: must be sft, rl or questions")
    questions = _first(_file_or_rows(name_or_path, split), max_samples)
    if format == "questions":
        return [question.model_dump() for question in questions]
    prompts = _templated(questions, str(model)) if model else [question.question for question in questions]
    pairs = zip(questions, prompts, strict=True)
    if format == "sft":
        end = "" if model else "\n"  # a chat template ends the prompt itself
        return [{"prompt": p, "completion": q.answer, "text": f"{p}{end}{q.answer}"} for q, p in pairs]
    return [{"prompt": p, "ground_truth": q.answer, **q.model_dump(exclude={"answer"})} for q, p in pairs]


def _loaded(source: Path | list[dict[str, Any]]) -> list[Question]:
    if isinstance(source, list):
        return [Question.model_validate(row) for row in source]
    from sql_agent.data.dataset import load_questions

    return load_questions(source)


def _first(source: Path | list[dict[str, Any]], n: int | None) -> list[Question]:
    if n is not None and (not isinstance(n, Integral) or n < 1):
        raise UserError(f"max_samples = {n!r:.80}: must be at least 1, a whole number, or None for all")
    return _loaded(source)[:n]


def question_file(source: Source, *, max_samples: int | None = None) -> Path:
    """Training questions as a file: the set's own, or a copy of its rows below .cache. Raises UserError."""
    file_or_rows = _file_or_rows(source, "train")
    if max_samples is None and isinstance(file_or_rows, Path):
        return file_or_rows
    rows = [question.model_dump() for question in _first(file_or_rows, max_samples)]
    name = Path(source).stem if isinstance(source, str | Path) else "given"
    return _written(f"{name}-train", rows)


def _file_or_rows(source: Source, split: str) -> Path | list[dict[str, Any]]:
    """The file of a set, or its rows as questions. Raises UserError."""
    if not isinstance(source, str | Path):
        return _rows("given", rows_of(source))
    if isinstance(source, str) and source in _registered:
        return _registered[source]
    name = str(source)
    if name == BUNDLED:
        if split not in SPLITS:
            raise UserError(f"split = {split!r}: {BUNDLED} has {', '.join(SPLITS)}{did_you_mean(split, SPLITS)}")
        return _existing(f"data/{split}.parquet")
    if local_copy(name, split) or (isinstance(source, str) and is_hub_name(name)):
        return _rows(name.rpartition("/")[2], hub_rows(name, split))
    if isinstance(source, str) and not name.endswith(QUESTION_FILES) and not data_path(name).is_dir():
        names = [BUNDLED, *_registered, *HUB]
        raise UserError(
            f"dataset {name!r}: neither a name ({', '.join(names)}) nor a file ({', '.join(QUESTION_FILES)})"
            f"{did_you_mean(name, names)}"
        )
    return _existing(name)


def _rows(name: str, rows: list[Any]) -> list[dict[str, Any]]:
    """Rows as questions, whose ids begin with the name. Raises UserError."""
    if rows:
        return [_row(name, number, row) for number, row in enumerate(rows, start=1)]
    raise UserError(f"dataset {name!r}: has no rows")


def _row(name: str, number: int, row: Any) -> dict[str, Any]:
    """A row as a question: the usual names of its columns, and an id. Raises UserError."""
    if not isinstance(row, Mapping):
        raise UserError(f"dataset {name!r}, row {number}: is a {type(row).__name__}, and must be a mapping")
    text = next((row[key] for key in QUESTION_KEYS if row.get(key)), None)
    if not isinstance(text, str):
        raise UserError(
            f"dataset {name!r}, row {number}: has {', '.join(row)}; one of {', '.join(QUESTION_KEYS)} is needed"
        )
    answer = next((row[key] for key in ANSWER_KEYS if row.get(key) is not None), "")
    extra = {key: row[key] for key in ("scorer", "answer_schema", "task_type", "sql", "evidence", "meta") if key in row}
    row_id = str(row.get("id", row.get("qid", f"{name}-{number}")))
    return {"id": row_id, "question": text, "answer": str(answer), **extra}


def _templated(questions: list[Question], model: str) -> list[str]:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    chats = [[{"role": "user", "content": question.question}] for question in questions]
    return [tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) for chat in chats]


def tuning_source(source: Source) -> str:
    """What `agentgrpo sft` and `agentgrpo dpo` call a set: questions, or conversations and pairs as they are."""
    if not isinstance(source, str | Path):
        rows = rows_of(source)
        is_questions = bool(rows) and isinstance(rows[0], Mapping) and not TALKS & rows[0].keys()
        return str(question_file(rows) if is_questions or not rows else _written("given", rows))
    is_named = str(source) in _registered or str(source) == BUNDLED
    return str(question_file(source)) if is_named or isinstance(source, Path) else source
