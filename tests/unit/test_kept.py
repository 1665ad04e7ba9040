"""Which checkpoints stay, which is the best, and when a run ends because it gets no better."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agl_plugin.run.kept import Checkpoints, KeepRules
from foundation import run_folder
from foundation.errors import UserError
from sql_agent.config import build_config
from sql_agent.serving.checkpoints import checkpoint_path, own_checkpoint
from sql_agent.training.ancestry import ancestors, ancestors_text

REWARDS = {1: 0.2, 2: 0.6, 3: 0.8, 4: 0.7, 5: 0.3, 6: 0.2, 7: 0.1}


def trained(
    run: Path, steps: dict[int, float], *, resumed: str = "", early_stop: int = 0, **settings: object
) -> Checkpoints:
    """A run that validates and saves at each of these steps, to its end or where it gets no better."""
    run.mkdir(parents=True)
    config = build_config({"trainer": {"resume": resumed}}, dict(settings)).model_dump(mode="json")
    (run / run_folder.CONFIG).write_text(json.dumps(config))
    folder = run / run_folder.CHECKPOINTS
    kept = Checkpoints(folder, KeepRules(newest=2, best_over=2, early_stop=early_stop), resumed=resumed)
    for step, reward in steps.items():
        kept.validated(step, reward)
        (run_folder.step_folder(folder, step) / "actor").mkdir(parents=True)
        (folder / run_folder.NOTE).write_text(str(step))
        kept.saved()
        if kept.gets_no_better:
            break
    return kept


def steps_in(run: Path) -> list[int]:
    return [run_folder.step_number(one) for one in run_folder.steps_of(run / run_folder.CHECKPOINTS)]


def test_the_best_of_smoothed_validations_stays_beside_the_newest(tmp_path: Path) -> None:
    """Means over two: 0.2, 0.4, 0.7, 0.75, 0.5, 0.25, 0.15."""
    trained(tmp_path / "a", REWARDS)
    assert steps_in(tmp_path / "a") == [4, 6, 7]
    for text, step in (("@best", 4), ("@6", 6), ("", 7)):
        place = checkpoint_path(f"{tmp_path / 'a'}{text}", option="--model")
        assert run_folder.step_number(own_checkpoint(place, option="--model")) == step
        relative = checkpoint_path(f"a{text}", tmp_path, option="--model")
        assert own_checkpoint(relative, option="--model") == own_checkpoint(place, option="--model")


def test_a_run_ends_after_so_many_validations_without_a_new_best(tmp_path: Path) -> None:
    kept = trained(tmp_path / "a", REWARDS, early_stop=2)
    assert kept.gets_no_better and steps_in(tmp_path / "a") == [4, 5, 6]
    assert json.loads((tmp_path / "a" / "checkpoints" / "best.json").read_text())["ended"]


@pytest.mark.parametrize("at", range(1, 7))
def test_a_run_that_goes_on_knows_the_same_best(tmp_path: Path, at: int) -> None:
    """Stopped after any step, and from each of its checkpoints: as a run that was never stopped."""
    trained(tmp_path / "whole", REWARDS)
    trained(tmp_path / "first", {step: value for step, value in REWARDS.items() if step <= at})
    resumed = str(checkpoint_path(f"{tmp_path / 'first'}@{at}", option="--resume"))
    trained(tmp_path / "second", {step: value for step, value in REWARDS.items() if step > at}, resumed=resumed)
    whole, second = (json.loads((tmp_path / run / "checkpoints/best.json").read_text()) for run in ("whole", "second"))
    assert whole.pop("folder") and Path(second.pop("folder")).is_dir() and second == whole


def test_a_fork_from_before_the_best_forgets_it(tmp_path: Path) -> None:
    trained(tmp_path / "a", {1: 0.2, 2: 0.3, 3: 0.9})
    trained(tmp_path / "b", {3: 0.5, 4: 0.4}, resumed=str(tmp_path / "a" / "checkpoints" / "global_step_2"))
    best = json.loads((tmp_path / "b" / "checkpoints" / "best.json").read_text())
    assert best["step"] == 4 and best["validations"] == [[1, 0.2], [2, 0.3], [3, 0.5], [4, 0.4]]


def test_what_was_not_scored_does_not_count(tmp_path: Path) -> None:
    kept = trained(tmp_path / "a", {1: 0.5})
    kept.validated(2, None)
    assert kept.is_best(1) and not kept.gets_no_better


def test_a_run_without_a_best_checkpoint_says_so(tmp_path: Path) -> None:
    (tmp_path / "a" / "checkpoints").mkdir(parents=True)
    with pytest.raises(UserError, match="--model .*@best: .* has no best checkpoint: none was saved"):
        checkpoint_path(f"{tmp_path / 'a'}@best", option=f"--model {tmp_path / 'a'}@best")
    with pytest.raises(UserError, match="no complete global_step_N folder below .*global_step_9, which"):
        own_checkpoint(checkpoint_path(f"{tmp_path / 'a'}@9", option="--model"), option="--model")
    for step in (2, 10):
        (tmp_path / "a" / "checkpoints" / f"global_step_{step}" / "actor").mkdir(parents=True)
    (tmp_path / "a" / "checkpoints" / run_folder.NOTE).write_text("10")
    with pytest.raises(UserError, match="which does not exist. Complete are: 2, 10$"):
        own_checkpoint(checkpoint_path(f"{tmp_path / 'a'}@9", option="--model"), option="--model")


def test_a_misspelt_best_is_told_with_what_may_stand_there(tmp_path: Path) -> None:
    (tmp_path / "a" / "checkpoints").mkdir(parents=True)
    with pytest.raises(UserError, match="--model: @bset is no checkpoint of .*a; say @best, @STEP, or the run"):
        checkpoint_path(f"{tmp_path / 'a'}@bset", option="--model")
    assert checkpoint_path("org/name@main", option="--model") == Path.cwd() / "org/name@main"


def test_early_stop_needs_validations_and_checkpoints() -> None:
    for key in ("save_every", "validate_every"):
        with pytest.raises(UserError, match="trainer.early_stop = 2 needs validations and checkpoints"):
            build_config({"trainer": {"early_stop": 2, key: -1}})


def test_a_forks_ancestry_names_each_run_its_step_and_what_changed(tmp_path: Path) -> None:
    trained(tmp_path / "a", {1: 0.2, 2: 0.3})
    steps = [str(tmp_path / run / "checkpoints" / "global_step_2") for run in ("a", "b")]
    trained(tmp_path / "b", {2: 0.5}, resumed=steps[0], optim={"lr": 2e-6})
    config = build_config({"trainer": {"resume": steps[1]}, "optim": {"lr": 2e-6, "kl_coef": 0.01}})
    found = ancestors(config.model_dump(mode="json"))
    assert [(one["run"], one["step"], one["changed"]) for one in found] == [
        ("b", 2, {"optim.kl_coef": [0.0, 0.01]}),
        ("a", 2, {"optim.lr": [build_config({}).optim.lr, 2e-6]}),
    ]
    assert ancestors_text(found) == "b@2, before that a@2; changed: optim.kl_coef 0.0 -> 0.01"


def test_the_best_of_a_run_that_was_moved_is_at_its_new_place(tmp_path: Path) -> None:
    trained(tmp_path / "a", {1: 0.2, 2: 0.3})
    (tmp_path / "a").rename(tmp_path / "b")
    assert checkpoint_path(f"{tmp_path / 'b'}@best", option="") == tmp_path / "b" / "checkpoints" / "global_step_2"
    (tmp_path / "b" / "checkpoints" / "best.json").write_text('{"folder": ')
    with pytest.raises(UserError, match="has no best checkpoint"):
        checkpoint_path(f"{tmp_path / 'b'}@best", option="")
