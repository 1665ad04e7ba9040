"""The commands of docs/50-extending.md, typed one after the other in a copy of the project, as they stand.

Only `make train` is not make's: it would install the copy, so what it runs after that stands in its place. The
addresses are those of a scripted server, the models that the page trains and compares are the tiny policy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sql_agent.config import ROOT, ModelConfig
from sql_agent.serving.models import model_folder
from sql_agent.testing.server import Answer, chat_reply, openai_server
from tests.pages import blocks_of

pytestmark = pytest.mark.slow
MAKE = """#!/usr/bin/env bash
set -eu; [ "$1" = train ]; eval "set -- ${2#ARGS=}"
exec .venv/bin/python -m sql_agent train "$@"
"""


def answer(request: dict[str, Any]) -> Answer:
    return chat_reply("4.5")


def copy_of_the_project(folder: Path) -> None:
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in files.split("\0")[:-1]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    shutil.copytree(ROOT / ".cache" / "tiny_policy", folder / ".cache" / "tiny_policy")


def test_the_commands_of_the_page(tmp_path: Path) -> None:
    project, tools = tmp_path / "project", tmp_path / "bin"
    copy_of_the_project(project)
    tools.mkdir()
    (tools / "make").write_text(MAKE)
    (tools / "make").chmod(0o755)
    tiny_policy = model_folder(ModelConfig(), tiny=True)
    for name in ("my_model", "my_trained_model"):
        (project / "sql_agent" / name).symlink_to(tiny_policy)
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    page = (ROOT / "docs" / "50-extending.md").read_text(encoding="utf-8")
    commands = [body for language, body in blocks_of(page) if language == "bash"]
    assert len(commands) == 8 and sum("make train" in body for body in commands) == 1
    with openai_server(answer) as server:
        for body in commands:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", body.replace("http://localhost:8000/v1", server.base_url)],
                cwd=project, capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL, check=False,
                env={**os.environ, "PATH": path, "PYTHONPATH": str(project)},
            )  # fmt: skip
            assert done.returncode == 0, (body, done.stdout[-3000:], done.stderr[-3000:])
            print(f"$ {body}{done.stdout[-500:]}")
    assert (project / "recipes/shop_agent/test_recipe.py").exists() and len(server.requests) >= 1
    assert '"my_recipe"' in (project / "tests/golden/recipes.json").read_text(encoding="utf-8")
