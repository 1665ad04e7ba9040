"""Several question files of one run: each row's agent, its file's number, and ids that are unique over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sql_agent.config import FileConfig, data_path
from sql_agent.data.dataset import fingerprint, load_questions
from sql_agent.records import Question


def load_files(files: Sequence[FileConfig]) -> list[list[Question]]:
    """The questions of each file. An id that an earlier file has gets its file's number: `q7@2`. Raises UserError."""
    ids: set[str] = set()
    parts: list[list[Question]] = []
    for number, entry in enumerate(files):
        rows: list[Question] = []
        for question in load_questions(data_path(entry.file)):
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
