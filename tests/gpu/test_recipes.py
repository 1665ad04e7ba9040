"""One small step of each GPU recipe, as a person would start it; then the same with adapters, and in float32.

Reported and asserted: the step trained, the sampler's gap is under its limit, the GPU's peak memory is under what the
device has. The peak is printed, to be compared with the arithmetic in the recipe's README.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from foundation import run_folder
from foundation.files import read_lines
from sql_agent.config import RECIPES, ROOT, TrainConfig, build_config, data_path, load_recipe
from tests.gpu.conftest import need_gpus

STEP_S = 3600.0
SMALL = [
    *("--ci-fast", "--set", "trainer.save_every=-1", "--set", "reward.judge.kind=reference"),
    *("--set", 'logging.trackers=["console"]'),
]


def gpu_recipes() -> dict[str, TrainConfig]:
    """Name -> configuration of the recipes for GPUs."""
    configs = {path.parent.name: build_config(load_recipe(path.parent.name)) for path in RECIPES.glob("*/config.toml")}
    return {name: config for name, config in sorted(configs.items()) if config.trainer.device == "cuda"}


def model_of(config: TrainConfig) -> str:
    """The recipe's model, from AGENTGRPO_TEST_MODELS where that is set."""
    folder, name = os.environ.get("AGENTGRPO_TEST_MODELS", ""), config.model.path
    return str(Path(folder).resolve() / name.rpartition("/")[2]) if folder else name


def need_data(config: TrainConfig) -> None:
    """Skip the test where the recipe's questions were not made yet: its README says how."""
    if not (path := data_path(config.data.train_file)).exists():
        pytest.skip(f"needs the recipe's questions ({path})")


def step(recipe: str, runs: Path, *settings: str) -> dict[str, Any]:
    """The metrics of one step. Rewards are flat where a model fails all questions: the gap is measured even then."""
    config = gpu_recipes()[recipe]
    arguments = ["--recipe", recipe, "--model", model_of(config), *SMALL, "--set", f"trainer.runs_dir={runs}"]
    command = [sys.executable, "-m", "sql_agent", "train", *arguments, *settings]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=STEP_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (folder,) = runs.iterdir()
    summary = json.loads((folder / run_folder.SUMMARY).read_text())
    assert summary["status"] == "finished" and summary["steps"] == 1 and summary["scored"] > 0
    (metrics,) = [row for row in read_lines(folder / run_folder.METRICS) if row["kind"] == "train"]
    assert math.isfinite(metrics["actor/grad_norm"]) and metrics["sampler/log_prob_diff_mean"] is not None
    return metrics


def report(name: str, metrics: dict[str, Any]) -> None:
    """One line for people, to compare with the recipe's README."""
    print(
        f"\n{name}: GPU memory {metrics['perf/max_memory_allocated_gb']:.1f} GiB allocated, "
        f"{metrics['perf/max_memory_reserved_gb']:.1f} reserved; sampler gap "
        f"{metrics['sampler/log_prob_diff_mean']:.4f} nats; "
        f"merged share {metrics['batch/merged_share']:.2f}; gradient norm {metrics['actor/grad_norm']:.3g}"
    )


@pytest.mark.gpu
@pytest.mark.parametrize("recipe", gpu_recipes())
def test_a_recipe_makes_a_step(recipe: str, tmp_path: Path) -> None:
    config = gpu_recipes()[recipe]
    need_gpus(config.trainer.n_gpus)
    need_data(config)
    metrics = step(recipe, tmp_path / "runs")
    report(recipe, metrics)
    assert metrics["sampler/log_prob_diff_mean"] < config.health.sampler_gap_max


@pytest.mark.gpu
@pytest.mark.parametrize("settings", [["--lora"], ["--set", "trainer.precision=float32"]], ids=["lora", "float32"])
def test_the_small_model_makes_a_step_otherwise(settings: list[str], tmp_path: Path) -> None:
    need_gpus(1)
    metrics = step("qwen3_0_6b", tmp_path / "runs", *settings)
    report("qwen3_0_6b " + " ".join(settings), metrics)
    assert metrics["sampler/log_prob_diff_mean"] < gpu_recipes()["qwen3_0_6b"].health.sampler_gap_max
