"""No command writes its results over the file that it reads: each refuses, and the file stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.typed import app_of


@pytest.mark.parametrize(
    ("command", "words", "name"),
    [
        ("data", ["--raw", "{file}", "--out", "{folder}"], "train.parquet"),
        ("curate", ["traffic", "{file}", "{folder}"], "questions.jsonl"),
        ("curate", ["new", "{file}", "{file}"], "questions.jsonl"),
        ("reward-model", ["convert", "--data", "{file}", "--out", "{file}"], "raw.jsonl"),
        ("reward-model", ["mine", "{file}", "--out", "{folder}/../{parent}/rollouts.jsonl"], "rollouts.jsonl"),
        ("reward-model", ["score", "--model", "none", "--data", "{file}", "--out", "{file}"], "answers.jsonl"),
    ],
)
def test_an_input_is_not_written_over(tmp_path: Path, command: str, words: list[str], name: str) -> None:
    file = tmp_path / name
    file.write_bytes(b"what somebody wrote")
    places = {"file": file, "folder": tmp_path, "parent": tmp_path.name}
    done = CliRunner().invoke(app_of(command), [word.format(**places) for word in words])
    assert done.exit_code == 2 and "is read from; name another place" in done.output
    assert file.read_bytes() == b"what somebody wrote" and list(tmp_path.iterdir()) == [file]
