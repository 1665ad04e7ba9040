"""--dry-run: each recipe is checked, composed and counted on a machine without GPU and without its model."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from foundation.errors import UserError
from sql_agent.config import ROOT, load_recipe
from sql_agent.training.dry_run import dry_run
from sql_agent.training.options import resolve_config
from tests.typed import train_flags
from tests.unit.test_public_data import database

pytestmark = pytest.mark.usefixtures("offline_judge")
NAMES = sorted(path.parent.name for path in ROOT.glob("recipes/*/config.toml"))
RECIPES = [name for name in NAMES if load_recipe(name).get("method", "grpo") == "grpo"]
CONSOLE = ("--set", 'logging.trackers=["console"]')


def told(*flags: str) -> str:
    text = StringIO()
    config = resolve_config(train_flags("--dry-run", *flags))
    assert dry_run(config, Console(file=text, soft_wrap=True, highlight=False)) == 0
    return text.getvalue()


def gsm8k_files(folder: Path, suffix: str) -> list[str]:
    """Flags for questions in the form of GSM8K's files."""
    rows = [{"question": f"{n} + 1?", "answer": f"{n} + 1 = <<{n}+1={n + 1}>>{n + 1}\n#### {n + 1}"} for n in range(64)]
    flags: list[str] = []
    for flag, part in (("--data", rows[:40]), ("--val-data", rows[40:])):
        file = folder / f"{flag.strip('-')}{suffix}"
        if suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(part), file)
        else:
            file.write_text("".join(json.dumps(row) + "\n" for row in part), encoding="utf-8")
        flags += [flag, str(file)]
    return flags


def brought(recipe: str, folder: Path) -> list[str]:
    """Flags for a recipe whose questions, or whose model, do not come along."""
    if recipe == "full_shape":
        return ["--model", "Qwen/Qwen3-0.6B"]
    if recipe == "math_gsm8k":
        return gsm8k_files(folder, ".jsonl")
    if not recipe.startswith("spider_"):
        return []
    database(folder / "database", "shop")
    rows = [{"question": f"What is {n}?", "sql": ["SELECT name FROM item"], "db_id": "shop"} for n in range(40)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    files = [word for flag in ("--data", "--val-data") for word in (flag, str(folder / "rows.jsonl"))]
    return [*files, "--set", f"database.folder={folder / 'database'}"]


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("more", [(), ("--model", "Qwen/Qwen3-0.6B")])
def test_gsm8ks_files_are_read_as_they_are(tmp_path: Path, suffix: str, more: tuple[str, ...]) -> None:
    text = told("--recipe", "math_gsm8k", *gsm8k_files(tmp_path, suffix), *more, *CONSOLE)
    assert "steps: 2, each 32 questions x 8 = 256 rollouts" in text
    assert f'  actor_rollout_ref.model.path = "{more[1] if more else "Qwen/Qwen2.5-0.5B-Instruct"}"' in text


@pytest.mark.long
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_is_looked_at_without_a_gpu(recipe: str, tmp_path: Path) -> None:
    text = told("--recipe", recipe, *brought(recipe, tmp_path), *CONSOLE)
    assert f'  recipe = "{recipe}"' in text and "  trainer.total_training_steps = " in text
    assert text.endswith("dry run: the checks passed; nothing was trained\n")
    assert "  actor_rollout_ref.actor.optim.betas = " not in text and text.count("\n") < 200


def test_what_is_as_by_default_is_shown_with_debug() -> None:
    text = told("--recipe", "smoke_cpu", "--debug")
    assert "  actor_rollout_ref.actor.optim.betas = " in text and "  optim.clip_low = " in text
    assert "recipe smoke_cpu on cpu; model " in text


@pytest.mark.long
def test_steps_and_calls_follow_from_the_settings(tmp_path: Path) -> None:
    settings = """
    optim.questions_per_step=10 optim.mini_batch_questions=5 rollout.group_size=6 trainer.max_steps=7
    trainer.validate_every=3 data.val_max_rows=20 agent.max_turns=4 optim.micro_batch_rows=1
    """
    text = told("--recipe", "smoke_cpu", *(flag for setting in settings.split() for flag in ("--set", setting)))
    assert "steps: 7, each 10 questions x 6 = 60 rollouts" in text and "2 optimizer step(s) of 30 rollouts" in text
    # Before the first step, after 3, 6 and 7.
    assert "rollouts: 420 in training, 80 in 4 validation(s)" in text
    assert "model calls: at most 2000 (4 turns each)" in text


@pytest.mark.long
def test_memory_is_counted_from_the_models_name() -> None:
    flags = ("--recipe", "qwen2_5_7b", "--n-gpus", "4", *CONSOLE)
    found = re.search(r"update: (\S+) GB per GPU .* \((\S+) in all\)", told(*flags))
    assert found and (float(found[1]), float(found[2])) == (30.5, 122.0)


@pytest.mark.long
def test_what_would_end_the_run_ends_the_dry_run() -> None:
    bad = {"trainer.resume=nowhere": "global_step_N", "rollout.tensor_parallel=3": "must divide"}
    for flag, says in {**bad, "model.path=./nowhere": "no such folder, and not a hub name"}.items():
        with pytest.raises(UserError, match=says):
            told("--recipe", "qwen2_5_7b", "--set", flag, *CONSOLE)


PLAYS = """
import openai

async def play(question, endpoint, tools):
    async with openai.AsyncOpenAI(base_url=endpoint.for_agent("writer"), api_key="x", max_retries=0) as client:
        said = [{"role": "user", "content": question.question}]
        reply = await client.chat.completions.create(model=endpoint.model, messages=said)
        return reply.choices[0].message.content
"""


@pytest.mark.long
def test_an_episode_of_each_agent_is_played(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(PLAYS)
    flags = ("--recipe", "smoke_cpu", "--set", f'agent.episode="{tmp_path}/own.py:play"', *CONSOLE)
    assert "episode of agent against a scripted model: answered; 1 of 1 calls trained" in told(*flags)
    assert "1 of 1 calls trained" in told(*flags, "--set", 'agent.match="wri.*"')
    with pytest.raises(UserError, match=r"agent\.match = 'wirter': of 1 calls of the episode none was of an agent"):
        told(*flags, "--set", 'agent.match="wirter"')


@pytest.mark.long
@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("agent.command", '"python {folder}/missing.py"', "missing.py"),
        ("agent.command", '"python {folder}/broken.py"', "[nN]o module named|ModuleNotFoundError|ended with"),
        ("agent.episode", '"{folder}/own.py:play"', "no such path"),
        ("agent.tools", '["{folder}/broken.py"]', "nothing_of_that_name"),
    ],
)
def test_an_agent_that_cannot_play_ends_the_dry_run(tmp_path: Path, key: str, value: str, says: str) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "own.py").write_text("async def play(question, endpoint, tools):\n    open('/no such path/x')\n")
    with pytest.raises(UserError, match=says):
        told("--recipe", "smoke_cpu", "--set", f"{key}={value.format(folder=tmp_path)}", *CONSOLE)
