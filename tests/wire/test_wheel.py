"""The wheel: one top-level package that needs nothing of the checkout, and bounds that find what is tried."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sql_agent.config import ROOT
from sql_agent.tiny_policy.sources import fingerprint
from sql_agent.tiny_policy.task import load_task

UV = ROOT / ".tools" / "bin" / "uv"
# What vLLM for CPUs pins and no index can give together.
OVERRIDES = ("packaging>=25", "torch==2.13.0", "torchvision==0.28.0", "torchaudio==2.11.0")
# The checkout is on the path of these tests' environment: here it must not be found.
APART = f"import sys\nsys.path[:] = [p for p in sys.path if p.rstrip('/') != {str(ROOT)!r}]\n"
INSTALLED = """
import importlib.util, subprocess, sys
import pytest
old = ("foundation", "recipes", "agl_plugin", "reward_client", "reward_model", "utils", "benchmarks")
found = [name for name in old if importlib.util.find_spec(name)]
assert not found, found
from sql_agent.agl_plugin.patches.register import PATCHES
from sql_agent.recipes.new import make_recipe
from sql_agent.config import HOME
from sql_agent.utils import filter_new_question  # curation is there
for module in {target.by.split(":")[0] for patch in PATCHES for target in patch.targets}:
    assert module.split(".")[0] not in old, module
    assert not module.startswith("sql_agent.") or importlib.util.find_spec(module), module
from sql_agent.tiny_policy.sources import fingerprint
from sql_agent.tiny_policy.task import load_task
for task in TASKS:
    print("policy", fingerprint(1, load_task(task)))
from sql_agent.foundation.preloaded import Preloaded
loaded = Preloaded("wave")  # as Ray's workers are started
asked = subprocess.run([loaded.executable, "-c", "import sys; print('wave' in sys.modules)"], capture_output=True)
assert asked.stdout == b"True\\n", asked
loaded.close()
made = make_recipe("shop_agent")
assert made == HOME / "shop_agent", made
assert pytest.main(["-q", "-p", "no:cacheprovider", str(made)]) == 0
files = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
loaded = [file for file in files if file.startswith(CHECKOUT + "/sql_agent")]
assert not loaded, loaded
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


@pytest.mark.long
def test_the_wheel_is_one_package_and_names_nothing_by_its_old_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        code = {name: files.read(name).decode() for name in names if name.endswith(".py")}
        points = next(files.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"sql_agent"}
    assert {"sql_agent/py.typed", "sql_agent/recipes/smoke_cpu/config.toml", "sql_agent/uv.lock"} <= set(names)
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in names}
    for name, text in code.items():
        assert not re.search(r"(?<!sql_agent[./])\b(agl_plugin|foundation|reward_client)\.[a-z_]+", text), name
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sql_agent"):
                below = f"{node.module}."
                assert node.module in modules or any(one.startswith(below) for one in modules), (name, below)
    assert all(line.split(" = ")[1].split(":")[0] in modules for line in points.splitlines() if " = " in line)


def test_an_installed_wheel_makes_a_recipe_whose_test_passes_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    (tmp_path / "site" / "sitecustomize.py").write_text(APART)
    home = tmp_path / "home"
    home.mkdir()
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    code = INSTALLED.replace("CHECKOUT", repr(str(ROOT))).replace("TASKS", '("", "sql_agent.recipes.math_cpu.tiny")')
    done = subprocess.run([sys.executable, "-c", code], cwd=home, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    own = [fingerprint(1, load_task(task)) for task in ("", "recipes.math_cpu.tiny")]
    assert re.findall(r"^policy (\w+)", done.stdout, re.MULTILINE) == own  # else it would be trained anew
    assert "python -m pytest" in (home / "shop_agent" / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["gpu", "cpu", "reward-model"])
def test_what_an_index_gives_for_the_wheel_is_within_what_is_tried(wheel: Path, tmp_path: Path, extra: str) -> None:
    (tmp_path / "in.txt").write_text(f"agentgrpo[{extra}] @ {wheel.as_uri()}\n")
    (tmp_path / "over.txt").write_text("\n".join(OVERRIDES if extra != "reward-model" else ()))
    command = [str(UV), "pip", "compile", "in.txt", "--override", "over.txt", "--python-version", "3.12", "-q"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = dict(line.split("==") for line in done.stdout.splitlines() if "==" in line and not line.startswith(" "))
    assert found["opentelemetry-sdk"].startswith("1.39."), found
    assert found["torch"] == "2.13.0" and tuple(map(int, found["numpy"].split(".")[:2])) < (2, 4)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release, and its one documented command in an empty environment: the folder of its programs."""
    folder = tmp_path_factory.mktemp("release")
    subprocess.run(["bash", ROOT / "utils" / "release.sh", folder / "dist"], check=True, capture_output=True)
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, folder / "env"], check=True)
    (built,) = (folder / "dist").glob("*.whl")
    into = [UV, "pip", "install", "-q", "--python", folder / "env" / "bin" / "python"]
    # Not in the checkout, whose overrides uv would take instead of the release's versions.
    subprocess.run([*into, "--no-deps", "-r", folder / "dist" / "requirements-cpu.txt", built], cwd=folder, check=True)
    return folder / "env" / "bin"


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["local", "verl"])
def test_what_one_command_installs_trains_a_step_outside_the_checkout(
    installed: Path, tmp_path: Path, backend: str
) -> None:
    command = [installed / "agentgrpo", "train", "--ci-fast", "--backend", backend]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    subprocess.run([installed / "agentgrpo", "doctor", "--no-imports"], cwd=tmp_path, env=environment, check=True)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = re.findall(r"^run: (.*)$", done.stdout, re.MULTILINE)
    summary = json.loads(Path(run, "summary.json").read_text(encoding="utf-8"))
    assert Path(run).is_relative_to(tmp_path) and summary["status"] == "finished" and summary["weights_changed"] is True
    assert summary["scored"] == summary["rollouts"] > 0
