"""Lines that no server of ours wrote are named and left out; the file of kept conversations is its owner's alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import UserError
from sql_agent.curation.chats import Limits
from sql_agent.curation.traffic import curate, read_talks
from sql_agent.serving.kept import Keeper

SAID = [{"role": "user", "content": "What treats a cough?"}]
TALK = {"kind": "conversation", "id": "c1", "model": "m", "db_id": "", "prompt": "Answer.", "at": 1, "said": SAID}
TALK |= {"messages": [{"role": "assistant", "content": "Codeine."}], "answer": "Codeine.", "queries": ["SELECT 1"]}
GOOD = {"kind": "feedback", "id": "c1", "score": 1}


def written(folder: Path, *rows: Any) -> Path:
    path = folder / "kept.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", TALK)
def test_a_line_without_one_of_its_keys_is_named(tmp_path: Path, name: str) -> None:
    less = {key: value for key, value in TALK.items() if key != name}
    talks, bad = read_talks(written(tmp_path, TALK, less, GOOD))
    assert [(talk.row.id, talk.score) for talk in talks] == [("c1", 1)]
    assert bad == ["line 2: is no kept conversation or feedback"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda one: st.lists(one, max_size=3)
)


@given(st.sampled_from([*TALK]), JSON, st.sampled_from([*GOOD]), JSON)
def test_nothing_in_a_line_breaks_the_reading(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: Any, other: str, wrong: Any
) -> None:
    path = written(
        tmp_path_factory.mktemp("kept"), TALK | {"id": "c0"}, TALK | {key: value}, GOOD | {other: wrong}, wrong
    )
    talks, _ = read_talks(path)
    found = curate(talks, Limits())
    assert all(row["ground_truth"] == "" or row["meta"]["origin"]["score"] == 1 for row in found.questions)


def test_a_file_of_no_conversation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no conversation in it; line 1: is no kept"):
        read_talks(written(tmp_path, ["x"]))


def test_a_file_that_was_there_becomes_its_owners_alone(tmp_path: Path) -> None:
    path = written(tmp_path, TALK)
    path.chmod(0o644)
    with Keeper(path):
        assert path.stat().st_mode & 0o777 == 0o600
    assert len(read_talks(path)[0]) == 1
    with pytest.raises(UserError, match="cannot be written"):
        Keeper(tmp_path)
