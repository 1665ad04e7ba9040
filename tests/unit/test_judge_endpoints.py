"""The list of judges: files in both forms, what is wrong with them, and that no message shows a key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reward_client import endpoints_from_env, read_endpoints
from sql_agent.config import JudgeConfig
from sql_agent.training.lit_agent import share_of

KEY = "sk-very-secret-0123456789"
FIRST = {"api_key": KEY, "base_url": "https://a.example.com", "model": "large", "rpm": 60, "prompt_price": 0.5}
SECOND = {"api_key": KEY, "base_url": "http://localhost:1/v1", "model": "small"}
TOML = f"""
[[endpoint]]
api_key = "{KEY}"
base_url = "https://a.example.com"
model = "large"
rpm = 60
prompt_price = 0.5

[[endpoint]]
api_key = "{KEY}"
base_url = "http://localhost:1/v1"
model = "small"
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [("j.toml", TOML), ("j.json", json.dumps([FIRST, SECOND])), ("j.json", json.dumps({"endpoint": [FIRST, SECOND]}))],
)
def test_a_file_lists_endpoints_in_order(tmp_path: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_text(text)
    monkeypatch.setenv("JUDGE_ENDPOINTS", str(tmp_path / name))
    monkeypatch.setenv("TEACHER_MODEL", "not asked")
    first, second = endpoints_from_env()
    assert str(first) == "large at https://a.example.com/v1" and (first.rpm, first.prompt_price) == (60, 0.5)
    assert str(second) == "small at http://localhost:1/v1" and first.id != second.id
    assert second.api_key.get_secret_value() == KEY and KEY not in repr([first, second]) + first.model_dump_json()


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ([], "must hold .* at least one entry"),
        ({"endpoints": [FIRST]}, "must hold .*endpoint.* tables"),
        ("x", "must hold"),
        ([FIRST, {**SECOND, "modell": "x"}], "entry 2: modell: Extra inputs"),
        ([{**FIRST, "base_url": "a.example.com"}], "entry 1: base_url: an address starts with http"),
        ([{**FIRST, "api_key": KEY + "\n"}], "entry 1: api_key: the key must be printable"),
        ([{**FIRST, "rpm": -1}], "entry 1: rpm"),
        ([{"base_url": "http://a", "model": "m"}], "entry 1: api_key: Field required"),
        ([3], "entry 1"),
    ],
)
def test_a_wrong_file_names_entry_and_key(tmp_path: Path, entries: Any, text: str) -> None:
    path = tmp_path / "judges.json"
    path.write_text(json.dumps(entries))
    with pytest.raises(ValueError, match=f"JUDGE_ENDPOINTS = .*judges.json': {text}") as caught:
        read_endpoints(path)
    assert KEY not in str(caught.value) and caught.value.__cause__ is None


@pytest.mark.parametrize(("name", "content"), [("a.toml", f'api_key = "{KEY}'), ("a.json", "["), ("a.toml", "\x00")])
def test_a_file_that_is_neither_form_is_named(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match="cannot be read") as caught:
        read_endpoints(tmp_path / name)
    assert KEY not in str(caught.value)
    with pytest.raises(ValueError, match="No such file"):
        read_endpoints(tmp_path / "none.toml")


@pytest.mark.parametrize(("n_runners", "share"), [(1, 16), (4, 4), (5, 3), (40, 1)])
def test_the_runner_processes_share_out_the_calls_in_flight(n_runners: int, share: int) -> None:
    assert share_of(JudgeConfig(concurrency=16), n_runners=n_runners).concurrency == share
