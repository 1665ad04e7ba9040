"""Training end to end, by the documented commands: all weights, LoRA, merge, resume; and what a real one is worth."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from foundation.errors import UserError
from foundation.files import write_lines
from foundation.net import free_port
from reward_model.merge_lora import merge
from reward_model.pairs import Item, make_pair
from reward_model.scoring import load_scorer
from sql_agent.config import ROOT
from tests.reward_models import make_model

# What accelerate launch runs on GPUs; its own CPU mode fails beside Intel's extension (accelerate 1.12).
LAUNCH = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port"]

# Minutes of training: part of `make test-all`.
pytestmark = pytest.mark.slow


def run(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """A command from the package's folder."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT / "reward_model", capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr[-3000:]
    return done


def train(base: Path, pairs: Path, out: Path, *flags: str, launch: list[str] | None = None, status: int = 0) -> str:
    known = ["--dataset_name", str(pairs), "--model_name_or_path", str(base), "--output_dir", str(out)]
    sizes = ["--per_device_train_batch_size", "4", "--learning_rate", "0.01", "--disable_tqdm", "true"]
    done = run(*(launch or []), "reward_modeling.py", *known, *sizes, *flags, status=status)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("base") / "base", head=False)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rule that anything can learn: 好 is better than 坏."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    made = [make_pair(f"问{n}", "好" * (n % 5 + 1), "坏" * (n % 7 + 1), kind="rule") for n in range(60)]
    write_lines(path, [*(pair.model_dump() for pair in made), make_pair("问", "好" * 900, "坏").model_dump(), {"x": 1}])
    return path


@pytest.fixture(scope="module")
def trained(base: Path, pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "full"
    train(base, pairs, out, "--max_length", "500", "--num_train_epochs", "2")
    return out


def test_a_flag_that_is_not_there_is_named_as_wrong_input(base: Path, pairs: Path, tmp_path: Path) -> None:
    told = train(base, pairs, tmp_path / "out", "--modle", "x", status=2)
    assert "--modle x: no such flag" in told and "defect" not in told
    assert not (tmp_path / "out").exists()


def test_the_help_begins_with_the_command() -> None:
    assert run("reward_modeling.py", "--help").stdout.startswith("usage: agentgrpo reward-model train --data PAIRS")


def test_a_model_is_trained_measured_and_explained(trained: Path) -> None:
    metrics = json.loads((trained / "metrics.json").read_text())
    assert metrics["validation"]["accuracy"] == 1 and metrics["validation"]["kinds"]["rule"]["n"] == 6
    assert sorted(count for counts in metrics["skipped"].values() for count in counts.values()) == [1, 1]
    assert metrics["log"][-2]["eval_accuracy"] == 1
    assert (trained / "curves.png").read_bytes()[:4] == b"\x89PNG"
    card = (trained / "README.md").read_text()
    assert "Pair accuracy 1.000" in card and "longer than 500 tokens" in card and str(ROOT) not in card
    assert not list(trained.glob("*.bin")) and list(trained.glob("checkpoint-*"))
    good, bad = load_scorer(trained).score(
        [Item(prompt="新问题", response="好好"), Item(prompt="新问题", response="坏坏")]
    )
    assert good.score > bad.score + 1


def test_a_full_folder_is_left_alone_and_a_run_resumed(base: Path, pairs: Path, trained: Path) -> None:
    said = train(base, pairs, trained, status=2)
    assert "is not empty" in said and "Traceback" not in said
    steps = json.loads((trained / "metrics.json").read_text())["steps"]
    train(base, pairs, trained, "--num_train_epochs", "3", "--resume_from_checkpoint", "latest")
    log = json.loads((trained / "metrics.json").read_text())
    assert log["steps"] == steps * 3 // 2
    assert "no checkpoint-N folder" in train(
        base, pairs, trained.parent / "new", "--resume_from_checkpoint", "latest", status=2
    )


def test_lora_on_two_processes_and_its_merge(base: Path, pairs: Path, tmp_path: Path) -> None:
    adapter, merged = tmp_path / "adapter", tmp_path / "merged"
    train(base, pairs, adapter, "--use_peft", "--num_train_epochs", "3", launch=[*LAUNCH, str(free_port())])
    assert json.loads((adapter / "adapter_config.json").read_text())["task_type"] == "SEQ_CLS"
    run("merge_lora.py", "--adapter", str(adapter), "--out", str(merged))
    metrics = json.loads((adapter / "metrics.json").read_text())
    good, bad = load_scorer(merged).score(
        [Item(prompt="新问题", response="好好"), Item(prompt="新问题", response="坏坏")]
    )
    assert metrics["validation"]["accuracy"] == 1 and good.score > bad.score
    with pytest.raises(UserError, match="has other weights than the base"):
        merge(adapter, tmp_path / "wrong", base=make_model(tmp_path / "other", head=False, seed=2))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--dataset_name", "nowhere.jsonl"], "cannot be read"),
        (["--model_name_or_path", "/no/such/folder"], "no such folder"),
    ],
)
def test_wrong_input_is_one_message(base: Path, pairs: Path, tmp_path: Path, flags: list[str], message: str) -> None:
    said = train(base, pairs, tmp_path / "out", *flags, status=2)
    assert message in said and "Traceback" not in said


@pytest.mark.slow
def test_the_small_reward_model_ranks_held_out_entities(tmp_path: Path) -> None:
    """`make reward-model` as it stands in the Makefile; the bar is the project's own."""
    out = tmp_path / "reward_model"
    done = subprocess.run(
        ["bash", "utils/train_reward_model.sh", str(out)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads((out / "test_metrics.json").read_text())
    assert found["n"] >= 1800 and found["accuracy"] >= 0.85
    scale = json.loads((out / "model" / "reward_scale.json").read_text())
    assert scale["needs_reference"] and scale["mean_error"] < 0.25
