"""The configuration tree: what wins over what, what is refused, and that the refusal names value, rule and remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic_core import PydanticUndefined

from foundation.errors import UserError
from sql_agent.config import (
    ROOT,
    TrainConfig,
    build_config,
    data_path,
    database_path,
    known_keys,
    load_recipe,
    merge,
    parse_assignment,
    recipe_path,
    resolve_path,
)

NAMES = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
TREES = st.recursive(st.integers(), lambda inner: st.dictionaries(NAMES, inner, max_size=3), max_leaves=8)


def leaf(tree: dict[str, Any], path: list[str]) -> Any:
    node: Any = tree
    for name in path:
        (key,) = node
        assert key == name
        node = node[key]
    return node


@given(st.lists(NAMES, min_size=1, max_size=4), VALUES)
def test_an_assignment_carries_any_json_value(path: list[str], value: Any) -> None:
    assert leaf(parse_assignment(f"{'.'.join(path)}={json.dumps(value)}"), path) == value


@given(st.lists(NAMES, min_size=1, max_size=4), st.text())
def test_what_is_no_json_is_text(path: list[str], text: str) -> None:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        assert leaf(parse_assignment(f"{'.'.join(path)}={text}"), path) == text
    else:
        assume(False)


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 5000, "{a=" * 5000])
def test_a_value_that_no_reader_takes_is_text(text: str) -> None:
    assert parse_assignment(f"optim.lr={text}") == {"optim": {"lr": text}}
    with pytest.raises(UserError, match="optim.lr"):
        build_config(parse_assignment(f"optim.lr={text}"))


@given(st.text().filter(lambda text: not text.partition("=")[0].strip() or "=" not in text))
def test_an_assignment_without_key_or_equals_sign_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="expected KEY=VALUE, for example --set optim.lr=2e-6"):
        parse_assignment(text)


def _keys(tree: dict[str, Any], above: str = "") -> Iterator[tuple[str, bool]]:
    """Each key with those above it, and whether it is a table."""
    for key, value in tree.items():
        yield f"{above}/{key}", isinstance(value, dict)
        yield from _keys(value, f"{above}/{key}") if isinstance(value, dict) else ()


@given(TREES, TREES, TREES)
def test_merging_is_associative_and_the_last_tree_wins(a: Any, b: Any, c: Any) -> None:
    trees = [tree if isinstance(tree, dict) else {"x": tree} for tree in (a, b, c)]
    tables, values = (
        {key for tree in trees for key, is_table in _keys(tree) if is_table is of} for of in (True, False)
    )
    assume(tables.isdisjoint(values))  # a key is a table in every file, or in none
    assert merge(merge(trees[0], trees[1]), trees[2]) == merge(trees[0], merge(trees[1], trees[2]))
    assert merge(trees[0], trees[1]).keys() == trees[0].keys() | trees[1].keys()
    assert all(merge(trees[0], trees[1])[k] == v for k, v in trees[1].items() if not isinstance(v, dict))


def test_defaults_yield_to_the_recipe_and_that_to_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[optim]\nlr = 3e-6\nclip_low = 0.1\n[rollout]\nn_runners = 2\n", encoding="utf-8")
    config = build_config(
        load_recipe(str(file)), {"rollout": {"n_runners": 3}}, parse_assignment("optim.clip_low=0.15")
    )
    assert (config.recipe, config.optim.lr, config.optim.clip_low, config.rollout.n_runners) == ("mine", 3e-6, 0.15, 3)
    assert config.optim.clip_high == TrainConfig().optim.clip_high


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("optim.lrr=1", "did you mean optim.lr?"),
        ("rollout.groupsize=4", "did you mean rollout.group_size?"),
        ("rolout.group_size=4", "did you mean rollout.group_size?"),
        ("trainer.save_evry=5", "did you mean trainer.save_every?"),
        ("reward.judge.timeout=5", "did you mean reward.judge.timeout_s?"),
        ("qqqqqqq=1", "docs/10-configuration.md lists all keys"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(text: str, near: str) -> None:
    with pytest.raises(UserError) as caught:
        build_config(parse_assignment(text))
    assert text.partition("=")[0] in str(caught.value) and near in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        *("trainer.seed=-1", f"data.seed={1 << 32}"),
        *("optim.lr=0", "optim.lr=-1", "optim.lr=NaN", "optim.lr=fast", "optim.clip_low=1.1", "optim=5"),
        *("rollout.level=turn", "rollout.group_size=0", "rollout.group_size=2.5", "rollout.temperature=-0.1"),
        *("trainer.device=tpu", "trainer.n_gpus=0", "trainer.save_every=-2", "store.port=70000"),
        *("reward.sql_bonus=2", "agent.max_turns=65", "rollout.gpu_memory_utilization=1"),
        *('logging.trackers=["mlflow"]', "optim.lr=Infinity", "optim.clip_high=1e999", "agent.llm_timeout_s=Infinity"),
    ],
)
def test_a_bad_value_is_named_with_its_key(text: str) -> None:
    with pytest.raises(UserError) as caught:
        build_config(parse_assignment(text))
    assert str(caught.value).startswith("configuration:\n") and text.partition("=")[0] in str(caught.value)


@pytest.mark.parametrize(
    ("text", "form"),
    [("database.tables=[tree]", "'database.tables=[\"tree\"]'"), ("optim.lr=fast", "optim.lr=1e-06")],
)
def test_a_value_of_another_type_is_answered_with_the_keys_form(text: str, form: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"; for example --set {form}")):
        build_config(parse_assignment(text))


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        ({"rollout": {"temperature": 0}}, r"rollout.temperature = 0 must be above 0.*set rollout.temperature = 1.0"),
        (
            {"rollout": {"presence_penalty": 0.5}},
            r"presence_penalty = 0\.5 needs optim.importance_correction = truncated",
        ),
        (
            {"optim": {"importance_correction": "truncated"}, "rollout": {"sampler_logprobs": False}},
            r"importance_correction = truncated needs rollout.sampler_logprobs = true",
        ),
        (
            {"rollout": {"trajectory_max_response_tokens": 100, "max_response_tokens": 200}},
            r"trajectory_max_response_tokens = 100 must not be below",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused_with_the_remedy(tree: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        build_config(tree)


def test_what_shifts_the_sampler_counts_in_training_alone() -> None:
    shifted = {"rollout": {"presence_penalty": 0.5}}
    assert build_config(shifted, {"optim": {"importance_correction": "truncated"}}).rollout.is_shifted
    assert not build_config({"rollout": {"validation": {"presence_penalty": 0.5}, "stop": ["x"]}}).rollout.is_shifted


def test_all_errors_are_listed_at_once() -> None:
    with pytest.raises(UserError) as caught:
        build_config({"optim": {"lr": -1, "lrr": 2}, "trainer": {"epochs": 0}})
    assert all(key in str(caught.value) for key in ("optim.lr ", "optim.lrr", "trainer.epochs"))


def batch(questions: int, mini: int, micro: int, n_gpus: int, group: int) -> dict[str, Any]:
    return {
        "optim": {"questions_per_step": questions, "mini_batch_questions": mini, "micro_batch_rows": micro},
        "trainer": {"n_gpus": n_gpus},
        "rollout": {"group_size": group},
    }


@given(*[st.integers(1, 16)] * 5)
def test_an_accepted_batch_passes_what_verl_asserts(
    questions: int, mini: int, micro: int, n_gpus: int, group: int
) -> None:
    """The arithmetic of verl 0.9.1: ActorConfig.validate, ActorRolloutRefWorker.__init__ and validate_config."""
    try:
        build_config(batch(questions, mini, micro, n_gpus, group))
    except UserError:
        return
    per_rank = mini * group // n_gpus
    assert questions >= mini and per_rank > 0 and per_rank % micro == 0 and per_rank // micro > 0
    assert questions * group % n_gpus == 0


@pytest.mark.parametrize(
    "sizes", [(8, 8, 8, 1, 4), (32, 32, 4, 2, 4), (32, 16, 2, 8, 4), (4, 4, 2, 2, 4), (1, 1, 1, 1, 1)]
)
def test_usual_batches_are_accepted(sizes: tuple[int, int, int, int, int]) -> None:
    config = build_config(batch(*sizes))
    assert config.optim.mini_batch_questions == sizes[1]


def test_a_batch_that_does_not_divide_names_both_sides() -> None:
    with pytest.raises(UserError, match=r"mini_batch_questions x rollout.group_size = 12 .* multiple of .* = 8"):
        build_config(batch(3, 3, 8, 1, 4))
    with pytest.raises(UserError, match=r"mini_batch_questions = 8 must not exceed optim.* = 4: .* Lower the one"):
        build_config(batch(4, 8, 1, 1, 4))


def test_every_setting_has_a_default_and_a_description() -> None:
    fields = known_keys()
    assert [key for key, field in fields.items() if not field.description] == []
    assert [
        key for key, field in fields.items() if field.get_default(call_default_factory=True) is PydanticUndefined
    ] == []


def test_the_configuration_survives_json() -> None:
    config = TrainConfig()
    assert build_config(json.loads(json.dumps(config.model_dump()))) == config


def test_a_missing_recipe_is_named_with_those_there_are() -> None:
    with pytest.raises(UserError, match=r"--recipe 'smoke_gpu': no such recipe.* smoke_cpu"):
        recipe_path("smoke_gpu")
    with pytest.raises(UserError, match=r"did you mean qwen2_5_7b\?"):
        recipe_path("qwen2.5_7b")


NO_TOML = [b"[optim\nlr = 1", b"\xff\xfe", b"[optim]\nlr = 1\nlr = 2", b"a = " + b"[" * 5000]


@pytest.mark.parametrize("content", NO_TOML)
def test_a_recipe_that_is_no_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.toml"
    file.write_bytes(content)
    with pytest.raises(UserError, match="broken.toml: not valid TOML"):
        load_recipe(str(file))


def test_a_recipe_is_found_as_name_folder_or_file(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "config.toml").write_text("[optim]\r\nlr = 1e-3\r\n", encoding="utf-8-sig")  # as Windows writes it
    for name in (str(folder), str(folder / "config.toml")):
        assert load_recipe(name) == {"optim": {"lr": 1e-3}, "recipe": "own"}
    assert load_recipe("smoke_cpu")["recipe"] == "smoke_cpu"


def test_paths_are_looked_up_where_the_user_stands_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    here = tmp_path / "data" / "train.parquet"
    here.write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert data_path("data/train.parquet") == here
    assert data_path(str(here)) == here
    assert data_path("data/none.parquet") == tmp_path / "data" / "none.parquet"
    assert database_path(TrainConfig().database) == ROOT / "sql_agent" / "data" / "medical.db"
    assert resolve_path("~/x").is_absolute()


def test_a_transition_need_not_hold_all_of_an_answer() -> None:
    rows = {"trajectory_max_response_tokens": 100, "max_response_tokens": 200}
    assert build_config({"rollout": {**rows, "level": "transition"}}).rollout.max_response_tokens == 200


def test_files_beside_a_recipe_are_found_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "rows.jsonl").write_text("")
    recipe = tmp_path / "config.toml"
    recipe.write_text(
        '[agent]\ntools = ["sql", "mine.py", "mine.py:one", "installed.module"]\nepisode = "mine.py:play"\n'
        '[data]\ntrain_file = "rows.jsonl"\nval_file = "data/val.parquet"\n'
    )
    tree, mine = load_recipe(str(tmp_path)), str(tmp_path / "mine.py")
    assert tree["agent"]["tools"] == ["sql", mine, f"{mine}:one", "installed.module"]
    assert tree["agent"]["episode"] == f"{mine}:play"
    assert tree["data"] == {"train_file": str(tmp_path / "rows.jsonl"), "val_file": "data/val.parquet"}
