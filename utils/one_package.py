"""Hatch's build hook: the wheel holds one top-level package, sql_agent, with the checkout's other packages beneath it.

In the checkout `foundation`, `recipes` and the others lie side by side. As installed packages those names would be in
the way of anybody's own `recipes` or `utils`. So the wheel has `sql_agent.foundation`, `sql_agent.recipes` and so on,
and what names a module or a file of theirs is rewritten: in imports, in texts such as "agl_plugin.algorithm:train", in
recipes. Guarantee: the build fails when an import of an old name is left.
"""

from __future__ import annotations

import ast
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "sql_agent"
BENEATH = ("foundation", "recipes", "agl_plugin", "reward_client", "reward_model", "utils")
LEFT_OUT = re.compile(r"utils/(one_package\.py|.*\.sh)$")
IMPORT = re.compile(rf"^(\s*(?:from|import)\s+)(?=(?:{'|'.join(BENEATH)})\b)", re.MULTILINE)
NAMED = re.compile(rf"(?:(?<![\w./-])|(?<=://))(?:{'|'.join(BENEATH)})(?:[./]\w+)+")
TEXTS = {".py", ".toml", ".yaml", ".sh", ".md"}


def rewritten(text: str, root: Path) -> str:
    """The text with each module and file of the packages beneath named as in the wheel."""

    def named(match: re.Match[str]) -> str:
        first_two = root.joinpath(*re.split(r"[./]", match[0])[:2])
        there = first_two.is_dir() or first_two.with_suffix(".py").is_file()
        separator = re.search(r"[./]", match[0])
        return f"{PACKAGE}{separator[0]}{match[0]}" if there and separator else match[0]

    return IMPORT.sub(rf"\1{PACKAGE}.", NAMED.sub(named, text))


def write_package(root: Path, names: Iterable[str], out: Path) -> None:
    """The one package's files below `out`. Raises ValueError naming the file with an import that is left."""
    for name in names:
        if name.split("/")[0] not in (PACKAGE, *BENEATH) or LEFT_OUT.match(name):
            continue
        target = out / name.removeprefix(f"{PACKAGE}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        data = (root / name).read_bytes()
        if target.suffix in TEXTS:
            data = rewritten(data.decode(), root).encode()
        if target.suffix == ".py" and (left := _old_imports(data.decode())):
            raise ValueError(f"{name}: imports {', '.join(left)}, which the wheel has beneath {PACKAGE}")
        target.write_bytes(data)
        target.chmod((root / name).stat().st_mode)


def _old_imports(code: str) -> list[str]:
    nodes = list(ast.walk(ast.parse(code)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) if not node.level]
    return [name for name in names if name.split(".")[0] in BENEATH]


class OnePackage(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._written = tempfile.TemporaryDirectory()
        chosen = list(self.build_config.builder.recurse_selected_project_files())
        write_package(Path(self.root), [file.relative_path for file in chosen], Path(self._written.name))
        self.build_config.set_exclude_all()
        build_data["force_include"][self._written.name] = PACKAGE
        build_data["force_include"]["uv.lock"] = f"{PACKAGE}/uv.lock"  # by which `agentgrpo doctor` judges versions
