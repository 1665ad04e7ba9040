"""`python -m recipes.new`: what it makes works in any place, and what it cannot make it says."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from foundation.errors import UserError
from recipes.new import TEMPLATE, make_recipe
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.agent.grading import scoring_of
from sql_agent.config import RECIPES
from sql_agent.training.options import resolve_config
from sql_agent.training.questions import load_data, silent_faults, total_steps
from tests.typed import app_of, train_flags


def invoke(*flags: object) -> Result:
    return CliRunner().invoke(app_of("new"), [str(flag) for flag in flags], catch_exceptions=False)


@pytest.mark.long
def test_it_composes_from_any_folder_with_its_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_recipe("shop", tmp_path / "agents")
    (tmp_path / "tools.py").write_text("raise SystemExit('another file of that name')")
    monkeypatch.chdir(tmp_path)
    config = resolve_config(train_flags("--recipe", str(made)))
    assert config.recipe == "shop" and config.agent.tools == [str(made / "tools.py")]
    assert config.agent.system_prompt == str(made / "prompt.txt")
    with EpisodeRunner(config) as runner, closing(scoring_of(config)) as scoring:
        runner.check()
        assert [tool.name for tool in runner.toolset.offered] == ["price_of", "multiply"]
        train, val = load_data(config, scoring)
    faults = silent_faults(config.rollout, config.optim, config.trainer, train=train, val=val)
    assert (len(train), len(val), [*faults]) == (10, 10, [])
    assert total_steps(config, len(train)) == 20


@pytest.mark.long
def test_its_test_runs_and_finds_a_broken_tool(tmp_path: Path) -> None:
    made = make_recipe("shop", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(made / "test_recipe.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
    tools = made / "tools.py"
    tools.write_text(tools.read_text(encoding="utf-8").replace("a * b", "a + b"), encoding="utf-8")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "('multiply', '6.0')" in done.stdout, done.stdout + done.stderr


def test_every_file_is_there_and_names_the_recipe(tmp_path: Path) -> None:
    done = invoke("shop", "--folder", tmp_path)
    assert done.exit_code == 0 and f"made {tmp_path / 'shop'}" in done.stdout
    made = tmp_path / "shop"
    names = {"config.toml", "tools.py", "prompt.txt", "train.jsonl", "val.jsonl", "README.md", "test_recipe.py"}
    assert {path.name for path in made.iterdir()} == names and [path.name for path in tmp_path.iterdir()] == ["shop"]
    readme = (made / "README.md").read_text(encoding="utf-8")
    assert f"--recipe {made} --ci-fast" in readme and f"pytest {made}/test_recipe.py" in readme
    assert not [path.name for path in made.iterdir() if "my_recipe" in path.read_text(encoding="utf-8").lower()]


def test_a_folder_with_blanks_is_one_word_of_each_command(tmp_path: Path) -> None:
    made = make_recipe("shop", tmp_path / "my agents")
    readme = (made / "README.md").read_text(encoding="utf-8")
    assert f"--recipe '{made}' --ci-fast" in readme and f"pytest '{made}'/test_recipe.py" in readme
    done = invoke("other", "--folder", tmp_path / "my agents")
    assert f"edit '{made.parent}/other'/tools.py" in done.stdout


def test_what_it_prints_can_be_typed_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "python -m pytest agents/shop/test_recipe.py" in invoke("shop", "--folder", "agents").stdout


@pytest.mark.parametrize(
    "name", ["", "Shop", "my-shop", "../shop", "shop/a", "1shop", "_shop", ".", "new", "店", "a b", "a" * 65, "shop\n"]
)
def test_a_bad_name_is_refused_with_the_rule(name: str, tmp_path: Path) -> None:
    done = invoke("--folder", tmp_path, "--", name)
    assert done.exit_code == 2 and repr(name) in done.stderr and "at most 64 of a-z, 0-9 and _" in done.stderr
    assert "give another, shop_agent" in done.stderr and list(tmp_path.iterdir()) == []


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    for name in ("shop", "gone"):
        done = invoke(name, "--folder", tmp_path)
        assert done.exit_code == 2 and "exists already" in done.stderr and "give another name" in done.stderr
    assert list((tmp_path / "shop").iterdir()) == []
    with pytest.raises(UserError, match="recipes/smoke_cpu exists already"):
        make_recipe("smoke_cpu")


def test_a_place_where_nothing_can_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = invoke("shop", "--folder", tmp_path / "file")
    assert done.exit_code == 2 and "give another place" in done.stderr and "Traceback" not in done.output


def test_help_teaches() -> None:
    shown = invoke("--help").stdout
    assert "agentgrpo new shop_agent" in shown and "--folder" in shown and "50-extending" in shown


def test_the_template_is_no_recipe() -> None:
    assert TEMPLATE.parent.parent == RECIPES and TEMPLATE.parent.name.startswith("_")
    assert not list(RECIPES.glob("_*/config.toml"))
