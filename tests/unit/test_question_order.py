"""A resumed run sees the questions that it would have seen: the trainer's loader, with a run's configuration."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from agl_plugin.trainer import loader_of
from sql_agent.config import build_config
from sql_agent.training.verl_config import verl_overrides
from sql_agent.training.verl_keys import composed_base

BATCH, EPOCHS = 4, 3

base = functools.cache(composed_base)


def loader(*, n_questions: int = 20, seed: int = 1, weights: tuple[float, ...] = ()) -> Any:
    """The loader of a fresh process, made as the trainer makes it.

    With `weights` the first five of each twenty questions are of a second file.
    """
    files = [{"file": f"{n}.jsonl", "weight": weight} for n, weight in enumerate(weights)]
    settings = {
        "optim": {"questions_per_step": BATCH, "mini_batch_questions": BATCH, "micro_batch_rows": 1},
        "data": {"seed": seed, "train_files": files},
    }
    overrides = verl_overrides(build_config(settings), model_path="/m", run_dir=Path("/r"), total_steps=15)
    config: Any = OmegaConf.merge(OmegaConf.create(base()), OmegaConf.create(overrides))
    rows: Any = [{"id": f"q{i}", "question": f"?{i}", "file": str(int(i % 20 < 5))} for i in range(n_questions)]
    return loader_of(rows, config.data)


def batches(train_dataloader: Any, *, n: int) -> list[list[str]]:
    """The question ids of the next `n` batches, taken as the trainer does: epoch by epoch."""
    found: list[list[str]] = []
    for _ in range(EPOCHS):
        for batch in train_dataloader:
            found.append([row["id"] for row in batch])
            if len(found) == n:
                return found
    return found


@functools.cache
def whole_run(n_questions: int) -> list[list[str]]:
    return batches(loader(n_questions=n_questions), n=15)


@pytest.mark.parametrize("n_questions", [20, 22])
@pytest.mark.parametrize("stop", range(1, 15))
def test_a_run_that_stopped_after_any_step_goes_on_with_the_same_batches(stop: int, n_questions: int) -> None:
    stopped = loader(n_questions=n_questions)
    assert batches(stopped, n=stop) == whole_run(n_questions)[:stop]
    resumed = loader(n_questions=n_questions)
    resumed.load_state_dict(stopped.state_dict())
    assert batches(resumed, n=15 - stop) == whole_run(n_questions)[stop:]


def test_a_run_that_stopped_twice_too() -> None:
    first = loader()
    batches(first, n=4)
    second = loader()
    second.load_state_dict(first.state_dict())
    batches(second, n=4)
    third = loader()
    third.load_state_dict(second.state_dict())
    assert batches(third, n=7) == whole_run(20)[8:]


def test_each_epoch_has_every_question_once_in_an_order_of_its_own() -> None:
    epochs = [[i for batch in whole_run(20)[at : at + 5] for i in batch] for at in (0, 5, 10)]
    assert all(sorted(epoch) == sorted(f"q{i}" for i in range(20)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize("stop", [1, 4, 7, 12])
def test_a_run_of_several_files_goes_on_with_the_same_batches_and_shares(stop: int) -> None:
    whole = batches(loader(weights=(1.0, 1.0)), n=15)
    assert all(sum(int(name[1:]) < 5 for name in batch) == BATCH // 2 for batch in whole)
    stopped, resumed = loader(weights=(1.0, 1.0)), loader(weights=(1.0, 1.0))
    assert batches(stopped, n=stop) == whole[:stop]
    resumed.load_state_dict(stopped.state_dict())
    assert batches(resumed, n=15 - stop) == whole[stop:]


def test_the_seed_decides() -> None:
    assert batches(loader(seed=1), n=5) == whole_run(20)[:5] != batches(loader(seed=2), n=5)
