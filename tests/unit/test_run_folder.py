"""The run folder: lines survive being cut anywhere, any text and number comes back, whole files appear whole."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from foundation.files import append_lines, jsonable, read_lines, write_json
from foundation.run_folder import new_run_folder

TEXTS = st.text(max_size=20)
ROWS = st.lists(
    st.dictionaries(TEXTS, TEXTS | st.integers() | st.none() | st.lists(TEXTS, max_size=2), max_size=3), max_size=5
)


@given(ROWS)
@example([{"answer": "高血压\u2028心绞痛\x85\x1c\r\n"}])
def test_rows_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    path = tmp_path_factory.mktemp("lines") / "rows.jsonl"
    append_lines(path, rows[:2])
    append_lines(path, rows[2:])
    assert read_lines(path) == rows


def test_a_killed_run_keeps_its_whole_lines(tmp_path: Path) -> None:
    """Whatever byte the last write reached, also within a Chinese character."""
    path = tmp_path / "rows.jsonl"
    append_lines(path, [{"answer": "高血压"}, {"answer": "心绞痛"}])
    data = path.read_bytes()
    first = data.index(b"\n") + 1
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        assert len(read_lines(path)) == (size >= first) + (size == len(data))


def test_a_lone_surrogate_does_not_stop_the_run(tmp_path: Path) -> None:
    r"""A model can write \ud83d into the JSON of a tool call."""
    append_lines(tmp_path / "rows.jsonl", [{"sql": json.loads('"SELECT \\ud83d"')}])
    assert read_lines(tmp_path / "rows.jsonl")[0]["sql"].startswith("SELECT ")


def test_a_file_that_is_not_there_has_no_lines(tmp_path: Path) -> None:
    assert read_lines(tmp_path / "none.jsonl") == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan"), torch.tensor(math.inf)])
def test_what_json_cannot_say_becomes_null(tmp_path: Path, value: Any) -> None:
    append_lines(tmp_path / "rows.jsonl", [{"loss": value, "inner": [value]}])
    assert read_lines(tmp_path / "rows.jsonl") == [{"loss": None, "inner": [None]}]


def test_scalars_of_numpy_and_torch_become_numbers() -> None:
    row = {"a": np.float32(0.5), "b": np.int64(3), "c": torch.tensor(2.0), "d": (np.bool_(True), "x"), 5: None}
    plain = jsonable(row)
    assert plain == {"a": 0.5, "b": 3, "c": 2.0, "d": [True, "x"], "5": None}
    assert json.loads(json.dumps(plain)) == plain


def test_run_folders_are_never_shared(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: new_run_folder(tmp_path / "runs", name="smoke"), range(40)))
    assert len(set(folders)) == 40 and all(folder.is_dir() for folder in folders)
    assert all(folder.name.split("-", 2)[2].startswith("smoke") for folder in folders)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_json(path, {"status": "running", "loss": math.nan})
    assert json.loads(path.read_text(encoding="utf-8")) == {"status": "running", "loss": None}
    with pytest.raises(TypeError):
        write_json(path, {"status": object()})
    assert json.loads(path.read_text(encoding="utf-8"))["status"] == "running"
    write_json(path, {"status": "完成"})
    assert "完成" in path.read_text(encoding="utf-8") and [p.name for p in tmp_path.iterdir()] == ["summary.json"]
