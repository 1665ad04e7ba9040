"""--dry-run: each recipe is checked, composed and counted on a machine without GPU and without its model."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from foundation.errors import UserError
from sql_agent.config import ROOT
from sql_agent.data.build import build_bundled
from sql_agent.training.dry_run import dry_run
from sql_agent.training.options import parser, resolve_config

RECIPES = sorted(path.parent.name for path in ROOT.glob("recipes/*/config.toml"))
CONSOLE = ("--set", 'logging.trackers=["console"]')


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    build_bundled()
    for name in ("TEACHER_API_KEY", "TEACHER_MODEL", "TEACHER_BASE_URL", "JUDGE_ENDPOINTS"):
        monkeypatch.delenv(name, raising=False)


def told(*flags: str) -> str:
    text = StringIO()
    config = resolve_config(parser().parse_args(["--dry-run", *flags]))
    assert dry_run(config, Console(file=text, soft_wrap=True, highlight=False)) == 0
    return text.getvalue()


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_is_looked_at_without_a_gpu(recipe: str) -> None:
    text = told("--recipe", recipe, *CONSOLE)
    assert f'  recipe = "{recipe}"' in text and "  trainer.total_training_steps = " in text
    assert text.endswith("dry run: the checks passed; nothing was trained\n")
    # Keys of verl that no recipe sets are there too.
    assert "  actor_rollout_ref.actor.optim.betas = " in text or "  trainer.balance_batch = " in text


def test_steps_and_calls_follow_from_the_settings(tmp_path: Path) -> None:
    size = [
        "optim.questions_per_step=10",
        "optim.mini_batch_questions=5",
        "rollout.group_size=6",
        "trainer.max_steps=7",
    ]
    more = ["trainer.validate_every=3", "data.val_max_rows=20", "agent.max_turns=4", "optim.micro_batch_rows=1"]
    text = told("--recipe", "smoke_cpu", *(flag for pair in [*size, *more] for flag in ("--set", pair)))
    assert "steps: 7, each 10 questions x 6 = 60 rollouts" in text and "2 optimizer step(s) of 30 rollouts" in text
    # Before the first step, after 3, 6 and 7.
    assert "rollouts: 420 in training, 80 in 4 validation(s)" in text
    assert "model calls: at most 2000 (4 turns each)" in text


def test_memory_is_counted_from_the_models_name() -> None:
    flags = ("--recipe", "qwen2_5_7b", "--n-gpus", "4", *CONSOLE)
    found = re.search(r"update: (\S+) GB per GPU .* \((\S+) in all\)", told(*flags))
    assert found and (float(found[1]), float(found[2])) == (28.0, 112.0)


def test_what_would_end_the_run_ends_the_dry_run() -> None:
    for flag, says in (("trainer.resume=nowhere", "global_step_N"), ("rollout.tensor_parallel=3", "must divide")):
        with pytest.raises(UserError, match=says):
            told("--recipe", "qwen2_5_7b", "--set", flag, *CONSOLE)
