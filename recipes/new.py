"""Make a recipe: a folder with tools, prompt, questions, configuration and a test, which trains a step as it stands.

Guarantees: nothing that exists is changed; the folder is there as a whole or not at all; what it names lies in it, so
that it works in any place. Not covered: settings for a GPU (recipes/qwen3_0_6b has them).
"""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from foundation.errors import UserError
from sql_agent.config import HOME, RECIPES, ROOT

TEMPLATE = RECIPES / "_template" / "agent"
NEW_RECIPES = RECIPES if RECIPES.parent == HOME else HOME
NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


def make_recipe(name: str, folder: Path = NEW_RECIPES) -> Path:
    """A new folder `folder`/`name`. Raises UserError when the name cannot be one, or is taken."""
    if not NAME.fullmatch(name) or name == "new":  # recipes/new.py is this module
        raise UserError(
            f"NAME = {name!r}: a recipe's name begins with a letter a-z, has at most 64 of a-z, 0-9 and _, and is not "
            "new; give another, shop_agent for example"
        )
    target = folder.expanduser().resolve() / name
    if target.exists() or target.is_symlink():
        raise UserError(f"NAME = {name!r}: {target} exists already, and nothing is written over; give another name")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent) as beside:
            _fill(Path(beside) / name, called=name if target.parent == RECIPES else str(target), at=target)
            (Path(beside) / name).rename(target)
    except OSError as exc:
        raise UserError(f"--folder {str(folder)!r}: no folder can be made there ({exc}); give another place") from exc
    return target


def _fill(draft: Path, *, called: str, at: Path) -> None:
    shutil.copytree(TEMPLATE, draft, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    names = {"my_recipe": at.name, "MY_RECIPE": shlex.quote(called), "MY_FOLDER": _seen_from(ROOT, at)}
    for file in (draft / "README.md", draft / "config.toml"):
        text = re.sub("|".join(names), lambda m: names[m[0]], file.read_text(encoding="utf-8"))
        file.write_text(text, encoding="utf-8")


def _seen_from(folder: Path, path: Path) -> str:
    """The path as one types it in a folder."""
    return shlex.quote(str(path.relative_to(folder) if path.is_relative_to(folder) else path))


def main(
    name: Annotated[str, typer.Argument(help="name of the recipe: a-z, 0-9 and _, a letter first")],
    folder: Annotated[
        Path | None,
        typer.Option(help="where to make it (default: recipes/; installed: here); its path is its name"),
    ] = None,
) -> None:
    """Make a recipe for an agent with tools of your own, which runs as it stands, and learns with a --model.

    \b
    agentgrpo new shop_agent                     recipes/shop_agent; --recipe shop_agent
    agentgrpo new shop_agent --folder ~/agents   anywhere; --recipe ~/agents/shop_agent

    It has two tools (tools.py), a prompt, ten questions to train on and ten to validate with, a configuration for a
    machine without GPU, a README with all commands, and a test. Change them one by one; docs/50-extending.md tells how.
    """
    recipe = make_recipe(name, folder or NEW_RECIPES)
    place = _seen_from(Path.cwd(), recipe)
    print(f"made {place}\nnext: edit {place}/tools.py, then: python -m pytest {place}/test_recipe.py")
    print("to train tools of your own, name a --model that calls tools: the tiny policy knows the SQL tool alone")
