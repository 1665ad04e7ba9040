"""Makes the patches of the register, and refuses to where another package is not what they were written for.

Guarantees: a patch is made when its module is loaded (at once, if it is), once per process, in all its targets or in
none; a wrong version, a module whose file is gone, a missing name and other parameters raise PatchError with what was
expected and what to install. Light to import.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import wrapt

from agl_plugin.patches.register import PATCHES, VERSIONS, Patch, Target
from foundation.errors import RunError
from foundation.processes import keep_freed_memory

_made: set[str] = set()


class PatchError(RunError):
    """A patch does not fit the installed package."""


def patches_of(places: Iterable[str]) -> list[Patch]:
    """The patches of these places, all when none is named."""
    wanted = set(places)
    return [patch for patch in PATCHES if not wanted or patch.place in wanted]


def wrong_versions(*places: str) -> str:
    """What is wrong with the versions of the packages that these places (none: all) patch, for people; or ""."""
    packages = {patch.package for patch in patches_of(places)}
    texts = [text for package, wanted in VERSIONS.items() if package in packages and (text := _wrong(wanted))]
    return "; ".join(texts)


def _wrong(wanted: dict[str, str]) -> str:
    for distribution, version in wanted.items():
        try:
            installed = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
        if installed.split("+")[0] == version:
            return ""
        return f"{distribution} {installed}: this project changes parts of it, and {_remedy(distribution, version)}"
    distribution, version = next(iter(wanted.items()))
    return f"{distribution} is not installed, and {_remedy(distribution, version)}"


def _remedy(distribution: str, version: str) -> str:
    return f"needs {distribution}=={version}: run `make setup`, or install that version"


def install(*places: str) -> None:
    """Make the patches of `places`, each as soon as its module is loaded. May be called again. Raises PatchError."""
    if wrong := wrong_versions(*places):
        raise PatchError(wrong)
    for patch in patches_of(places):
        if patch.name in _made:
            continue
        for target in patch.targets:
            check_file(patch, target)
        _made.add(patch.name)
        if patch.how == "stand-in":
            for target in patch.targets:
                sys.modules.setdefault(target.module, resolve_name(target.by)(target.module))
            continue
        wrapt.register_post_import_hook(functools.partial(_make, patch), patch.targets[0].module)


def install_at_start() -> None:
    """The patches that must be there before agentlightning is imported. Ray calls it in each of its workers."""
    install("start")


def install_in_verl() -> None:
    """The patches of a process that loads verl: those of workers, and what AGENTGRPO_CPU and AGENTGRPO_LORA ask for."""
    places = ["worker"]
    if os.environ.get("AGENTGRPO_CPU") == "1":
        keep_freed_memory()
        places.append("cpu")
    if os.environ.get("AGENTGRPO_LORA") == "1":
        places.append("lora")
    install(*places)


def check_file(patch: Patch, target: Target) -> None:
    """The file of the target's module is there; else its hook would wait for ever. Imports nothing."""
    top, *rest = target.module.split(".")
    spec = importlib.util.find_spec(top)
    roots = spec.submodule_search_locations if spec else None
    folders = [Path(root, *rest) for root in roots or []]
    if not any(folder.is_dir() or folder.with_suffix(".py").is_file() for folder in folders):
        raise _misfit(patch, f"{target.module} does not exist")


def check(patch: Patch, target: Target) -> tuple[Any, str]:
    """The object that holds the target, and the target's name in it. Imports the module. Raises PatchError."""
    module, _, path = target.at.partition(":")
    *above, name = path.split(".")
    try:
        owner = functools.reduce(getattr, above, importlib.import_module(module))
        present = getattr(owner, name)
    except (ImportError, AttributeError) as exc:
        raise _misfit(patch, f"{target.at} does not exist ({exc})") from exc
    if target.parameters is not None:
        has = parameters_of(present)
        if has != target.parameters.split():
            expected = ", ".join(target.parameters.split())
            raise _misfit(patch, f"{target.at} takes ({', '.join(has)}) instead of ({expected})")
    return owner, name


def parameters_of(function: Any) -> list[str]:
    """Names of a function's parameters; behind a decorator of (*args, **kwargs) those of what it calls."""
    names = list(inspect.signature(function).parameters)
    inner = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    inner = [value for value in inner if inspect.isfunction(value)]
    return parameters_of(inner[0]) if names == ["args", "kwargs"] and len(inner) == 1 else names


def _misfit(patch: Patch, what: str) -> PatchError:
    wanted = " or ".join(f"{name}=={version}" for name, version in VERSIONS.get(patch.package, {}).items())
    remedy = f"written for {wanted}; run `make setup`, or install that" if wanted else "run `make setup`"
    return PatchError(f"patch {patch.name} of {patch.package}: {what}. It is {remedy}")


def _make(patch: Patch, _module: Any) -> None:
    if patch.without_gpu_only:
        import torch

        if torch.cuda.is_available():
            return
    resolved = [(*check(patch, target), resolve_name(target.by)) for target in patch.targets]
    for owner, name, by in resolved:
        new = by(getattr(owner, name)) if patch.how == "wrapped" else by
        static = isinstance(inspect.getattr_static(owner, name, None), staticmethod)
        setattr(owner, name, staticmethod(new) if static else new)
