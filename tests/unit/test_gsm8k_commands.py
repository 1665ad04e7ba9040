"""train_gsm8k_agent.py and test_interactive.py as far as no model is needed, and GSM8K from a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foundation.errors import UserError
from foundation.files import write_json, write_lines
from sql_agent import api
from sql_agent.commands.gsm8k import NOTE, Flags, recipe_of, resolve_config, train
from sql_agent.config import TrainConfig, build_config
from sql_agent.data.hub import hub_rows, is_hub_name
from sql_agent.local.arguments import check_keys
from sql_agent.tuning.sources import read_source
from tests.typed import as_script

ROWS = [{"question": f"{n} + 1?", "answer": f"It is <<{n}+1={n + 1}>>.\n#### {n + 1}"} for n in range(7)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sql_agent.data.named.HOME", tmp_path)
    return tmp_path


def write_copy(folder: Path, form: str) -> None:
    folder.joinpath("gsm8k", "main").mkdir(parents=True)
    if form == "train.jsonl":
        write_lines(folder / "gsm8k" / form, ROWS)
    elif form == "train.parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), folder / "gsm8k" / form)
    else:
        for n, rows in enumerate((ROWS[:4], ROWS[4:])):
            pq.write_table(pa.Table.from_pylist(rows), folder / "gsm8k" / "main" / f"train-0000{n}-of-00002.parquet")


@pytest.mark.parametrize("form", ["train.jsonl", "train.parquet", "main/train-*.parquet"])
def test_a_folder_stands_for_the_hubs_set(here: Path, form: str) -> None:
    write_copy(here, form)
    assert hub_rows("gsm8k", "train") == ROWS
    assert [row["answer"] for row in api.load_dataset("gsm8k")] == [row["answer"] for row in ROWS]
    assert api.load_dataset(here / "gsm8k", max_samples=2)[1]["question"] == "1 + 1?"
    config = build_config({"sft": {"dataset": "gsm8k"}})
    chats = read_source(config.sft, config.data, config).chats
    assert [[message["role"] for message in chat.messages] for chat in chats] == [["user", "assistant"]] * len(ROWS)


def test_a_broken_copy_is_named(here: Path) -> None:
    write_copy(here, "train.jsonl")
    (here / "gsm8k" / "train.jsonl").write_text('{"question": "a?"', encoding="utf-8")
    with pytest.raises(UserError, match=r"train\.jsonl: cannot be read"):
        hub_rows("gsm8k", "train")


@pytest.mark.parametrize(
    ("name", "is_one"), [("gsm8k", True), ("openai/gsm8k", True), ("./gsm8k/main", False), ("a/b.jsonl", False)]
)
def test_names_of_the_hub(here: Path, name: str, is_one: bool) -> None:
    assert is_hub_name(name) == is_one


def given(*flags: str) -> Flags:
    return Flags(**as_script("gsm8k", *flags))


def composed(*flags: str) -> TrainConfig:
    return resolve_config(given(*flags))


def test_flags_become_keys(here: Path) -> None:
    write_copy(here, "train.jsonl")
    model = ["--model_path", "./outputs/sft", "--dataset", "gsm8k", "--output_dir", "./outputs/rl"]
    config = composed(*model, "--samples_per_prompt", "4", "--max_new_tokens", "256", "--total_epochs", "3")
    assert (config.recipe, config.model.path, config.rollout.group_size) == ("math_gsm8k", "./outputs/sft", 4)
    assert (config.rollout.max_response_tokens, config.trainer.epochs, config.trainer.save_every) == (256, 3, 1)
    assert config.optim.questions_per_step == len(ROWS) and config.trainer.keep_checkpoints == 3
    check_keys(config)
    config = composed(*model, "--samples_per_prompt", "2", "--batch_size", "2", "--gradient-accumulation-steps", "3")
    assert (config.optim.questions_per_step, config.optim.micro_batch_rows) == (3, 2)
    assert config.trainer.save_every == 2  # 7 questions in steps of 3
    config = composed(*model, "--max_samples", "2", "--use_lora", "--learning_rate", "1e-4", "--set", "trainer.seed=9")
    assert (config.optim.questions_per_step, config.optim.lr, config.trainer.seed) == (2, 1e-4, 9)
    assert config.model.lora_rank and len(api.load_dataset(config.data.train_file)) == 2


def test_without_a_model_the_tiny_policy_learns_its_own_problems(here: Path) -> None:
    config = composed("--max_samples", "5", "--samples_per_prompt", "2", "--max_new_tokens", "128")
    assert (config.recipe, config.model.path, config.optim.questions_per_step) == ("math_cpu", "", 5)


@pytest.mark.parametrize("flags", [["--max_samples", "0"], ["--dataset", "gsm8j"], ["--set", "optim.lrr=1"]])
def test_wrong_input_is_told(here: Path, flags: list[str]) -> None:
    with pytest.raises(UserError):
        composed(*flags)


def test_epochs_of_others_are_not_touched(here: Path) -> None:
    (here / "epoch_1").mkdir()
    terminal: Any = None
    with pytest.raises(UserError, match="did not make"):
        train(given("--max_samples", "2", "--output_dir", str(here)), terminal)


def test_the_chat_knows_with_what_a_model_was_trained(here: Path) -> None:
    write_json(here / "rl" / NOTE, {"run": "r", "recipe": "math_cpu"})
    assert recipe_of(Path("rl/epoch_3")) == "math_cpu"
    assert recipe_of(Path("Qwen/Qwen2.5-0.5B")) == "math_gsm8k"
