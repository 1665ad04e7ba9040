"""What programs hand to sql_agent.api: rows, frames, values, functions as tools."""

from __future__ import annotations

import datetime
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from foundation.files import read_lines
from sql_agent import api
from sql_agent.agent.own_child import Alone
from sql_agent.agent.own_tools import load
from sql_agent.api.calls import settings
from sql_agent.api.given import tool_source
from sql_agent.config import ROOT
from sql_agent.data.given import plain
from sql_agent.data.named import question_file, tuning_source
from tests.typed import train_call

ROWS = [{"question": "1 + 1?", "answer": "2"}, {"question": "1 + 2?", "answer": "3"}]


@pytest.fixture(autouse=True)
def caches_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sql_agent.data.named.HOME", tmp_path)
    monkeypatch.setattr("sql_agent.api.given.HOME", tmp_path)
    monkeypatch.setattr("sql_agent.data.named._registered", {})


class Rows:
    """As datasets.Dataset: its rows one after the other, with more methods around."""

    column_names = ("question", "answer")

    def __iter__(self) -> Any:
        return iter(ROWS)


SOURCES = [
    ROWS,
    tuple(ROWS),
    (row for row in ROWS),
    {"question": [row["question"] for row in ROWS], "answer": np.array([2, 3])},
    pd.DataFrame(ROWS),
    pd.DataFrame({"problem": ["1 + 1?", "1 + 2?"], "solution": [2, 3], "evidence": [None, float("nan")]}),
    pa.Table.from_pylist(ROWS),
    Rows(),
]


def untyped(**given: Any) -> Any:
    """What a caller without types may give."""
    return given


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: type(source).__name__)
def test_rows_in_any_form_are_a_data_set(source: Any) -> None:
    source = list(source) if inspect.isgenerator(source) else source
    rows = api.load_dataset(source)
    assert [(row["question"], row["answer"]) for row in rows] == [("1 + 1?", "2"), ("1 + 2?", "3")]
    assert len(read_lines(question_file(source, max_samples=1))) == 1
    config = train_call(dataset=source, max_samples=np.int64(2))
    assert config.data.train_file == str(question_file(source, max_samples=2))


def test_conversations_and_pairs_are_passed_on_as_they_are() -> None:
    talk = [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}]
    assert read_lines(Path(tuning_source(pd.DataFrame(talk)))) == talk
    assert read_lines(Path(tuning_source(ROWS)))[0]["question"] == "1 + 1?"
    assert tuning_source("owner/name") == "owner/name"


def test_one_tool_is_a_list_of_one() -> None:
    assert train_call(tools="sql").agent.tools == train_call(tools=["sql"]).agent.tools == ["sql"]
    assert train_call(tools=()).agent.tools == train_call().agent.tools
    assert train_call(tools=inspect.cleandoc).agent.tools == train_call(tools=[inspect.cleandoc]).agent.tools


def test_values_of_numpy_paths_and_dates_reach_the_configuration() -> None:
    given = {"optim.lr": np.float32(0.5), "optim.questions_per_step": np.int64(4), "database.path": Path("a/b.db")}
    assert settings(given) == {"optim.lr": 0.5, "optim.questions_per_step": 4, "database.path": "a/b.db"}
    assert settings({"database.tables": np.array(["a", "b"])}) == {"database.tables": ["a", "b"]}
    assert plain({"a": (1, {2})}, what="x") == {"a": [1, [2]]} and plain(pd.NaT, what="x") is None
    assert plain([pd.NA, pd.Timestamp(0), datetime.date(2020, 1, 2)], what="x")[0::2] == [None, "2020-01-02"]
    with pytest.raises(api.UserError, match=r"optim\.lr = .*object.* cannot be passed on"):
        settings({"optim.lr": object()})


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda: api.load_dataset(Path("own/rows.jsonl")), f"^{Path.cwd()}/own/rows.jsonl: does not exist; .*csv"),
        (lambda: api.load_dataset("own/rows.parquet"), "/own/rows.parquet: does not exist"),
        (lambda: api.load_dataset(Path("tests")), "/tests: is a folder"),
        (lambda: api.train(dataset=Path("own/rows")), "/own/rows: does not exist"),
        (lambda: api.register_dataset("mine", "own.jsonl"), "/own.jsonl: does not exist"),
        (lambda: api.load_dataset({"train": Rows(), "test": [Rows()]}), "train, test; give one of them"),
        (lambda: api.load_dataset({"question": "1?"}), "a list of them"),
        (lambda: api.load_dataset(7), "is no data set"),
        (lambda: api.load_dataset([1]), "row 1: is a int"),
        (lambda: api.load_dataset([{"question": "?", "meta": {"x": object()}}]), "row 1.meta.x"),
        (lambda: api.train(datset=ROWS), "did you mean dataset"),
        (lambda: api.sft(outputdir="x"), "did you mean output_dir"),
        (lambda: api.evaluate(limits=3), "did you mean limit"),
        (lambda: api.train(tools=[lambda x: x]), "with a name"),
        (lambda: api.train(tools=[3]), "typed function"),
        (lambda: api.train(max_samples=0), "max_samples = 0: must be at least 1"),
        (lambda: api.train(dataset=ROWS, max_samples=-1), "max_samples = -1: must be at least 1"),
        (lambda: api.train(**untyped(max_samples="3")), "max_samples = '3': must be at least 1, a whole number"),
        (lambda: api.load_dataset(**untyped(max_samples=2.5)), "max_samples = 2.5: must be at least 1, a whole number"),
        (lambda: api.evaluate(**untyped(limit="3")), "limit = '3': must be at least 0, a whole number"),
        (lambda: api.evaluate(**untyped(samples=None)), "samples = None: must be at least 1"),
        (lambda: api.train(**untyped(reward=3)), "reward = 3: give one function"),
        (lambda: api.train(**untyped(reward=[len, len])), r"reward = \[.*: give one function"),
        (lambda: api.train(reward=lambda completions: [1.0]), "end its parameters with"),
        (lambda: api.train(reward=lambda completions, answer: [1.0]), "unexpected keyword argument 'id'"),
        (lambda: api.sft("no_such_recipe"), "no such recipe"),
    ],
)
def test_what_cannot_be_taken_is_named_as_it_was_given(call: Any, rule: str) -> None:
    with pytest.raises(api.UserError, match=rule):
        call()


def test_a_call_names_its_keys() -> None:
    signature = inspect.signature(api.train).parameters
    assert signature["optim__lr"].default and signature["optim__lr"].kind is inspect.Parameter.KEYWORD_ONLY
    assert "recipe" in signature and inspect.signature(api.sft).parameters["dataset"].kind.name == "KEYWORD_ONLY"
    assert list(api.keys("optim.lr")) and all("optim" in key + text for key, text in api.keys("optim").items())


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


NOTEBOOK = """
from __future__ import annotations
from typing import Literal
import pathlib, sys
from sql_agent.api import given
from sql_agent.api.given import tool_source

given.HOME = pathlib.Path(sys.argv[1])
STEP = 2

def raised(a: int, how: Literal["up", "down"]) -> int:
    '''Go a step.'''
    return a + STEP if how == "up" else a - STEP

class Counter:
    '''Counts.'''
    def reset(self, question: str) -> None:
        self.n = 0
    def more(self) -> int:
        '''One more.'''
        self.n += STEP
        return self.n

print(tool_source(raised), tool_source(Counter))
"""


def test_functions_are_tools(tmp_path: Path) -> None:
    worker = Alone()
    (tmp_path / "mine.py").write_text("def double(a: int) -> int:\n    'Twice.'\n    return 2 * a\n")
    found = subprocess.run(
        [sys.executable, "-c", "import mine; from sql_agent.api.given import tool_source as t; print(t(mine.double))"],
        **{"env": {"PYTHONPATH": f"{tmp_path}:{ROOT}"}, "capture_output": True, "text": True, "check": True},
    )
    assert found.stdout.strip() == f"{tmp_path.resolve()}/mine.py:double"
    program = subprocess.run(
        [sys.executable, "-c", NOTEBOOK, str(tmp_path)],
        **{"env": {"PYTHONPATH": str(ROOT)}, "capture_output": True, "text": True, "check": True},
    )
    for source in [found.stdout.strip(), tool_source(add), *program.stdout.split()]:
        tools, environments = load(source, worker)
        assert len(tools) + len(environments) == 1, source
    assert tool_source("sql") == "sql" and tool_source(Path("x.py")) == "x.py"
