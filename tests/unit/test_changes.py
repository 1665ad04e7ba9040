"""No module changes an attribute of another package: only install.py does, by the register.

Read from the syntax trees. Not covered: objects that a function gets or makes, unless a class of theirs is named.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from sql_agent.config import ROOT

OWN = {"agl_plugin", "sql_agent", "foundation", "reward_client", "reward_model"}
SOURCES = sorted(path for name in OWN for path in (ROOT / name).rglob("*.py"))
# The register's own setattr, and the methods that it lists as "on the instance".
MAY_SET = {"agl_plugin/patches/install.py", "agl_plugin/trainer.py"}


def root_of(node: ast.expr) -> str:
    """The name at the left end of a.b.c[d]."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def imported(tree: ast.Module) -> set[str]:
    """Names bound by an import of another package, and names that are set to one of those or to a part of it."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            parts = [(alias.asname or alias.name.split(".")[0], alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = [(alias.asname or alias.name, node.module or "") for alias in node.names]
        else:
            continue
        names |= {name for name, source in parts if source.split(".")[0] not in OWN | sys.stdlib_module_names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Name | ast.Attribute):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if root_of(node.value) in names:
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def parameters(tree: ast.Module) -> set[str]:
    """Parameters of functions that may be modules or classes: all but those of methods on themselves."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {arg.arg for function in functions for arg in function.args.args} - {"self", "cls"}


def changes(source: str) -> list[str]:
    """Statements that set or delete an attribute of another package's module or class."""
    tree = ast.parse(source)
    foreign, given = imported(tree), parameters(tree)
    own = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = [part for target in node.targets for part in (getattr(target, "elts", None) or [target])]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr", "object.__setattr__"):
            is_own = root_of(node.args[0]) in {"self", *own} and isinstance(node.args[0], ast.Name)
            found += [] if is_own else [node]
        found += [node for target in targets if _is_foreign(target, foreign, given)]
    return [ast.unparse(node) for node in found]


def _is_foreign(target: ast.expr, foreign: set[str], given: set[str]) -> bool:
    """A part of what is imported, `given.Class.method` as hooks of modules write it, or an entry of a __dict__."""
    if isinstance(target, ast.Subscript):
        return ".__dict__" in ast.unparse(target)
    if not isinstance(target, ast.Attribute):
        return False
    of_class = isinstance(target.value, ast.Attribute) and target.value.attr.lstrip("_")[:1].isupper()
    return root_of(target) in foreign or (root_of(target) in given and of_class)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_changes_no_other_package(path: Path) -> None:
    if str(path.relative_to(ROOT)) not in MAY_SET:
        assert changes(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.cuda.is_available = 1",
        "from verl.x import Actor\nActor.f = g",
        "from verl.x import Actor\nA = Actor\nA.f = g",
        "import verl.x.y as z\nsetattr(z, 'f', 1)",
        "from a import b, c\nb.x = c.x = 1",
        "import torch\ndel torch.x",
        "def hook(module):\n    module.Worker.run = 1",
        "import torch\ntorch.__dict__['x'] = 1",
    ],
)
def test_a_change_is_found(source: str) -> None:
    assert changes(source)


@pytest.mark.parametrize(
    "source", ["import os\nos.x = 1", "class A:\n  def f(self):\n    self.x.y = 1", "a = 1\na.b = 2"]
)
def test_what_is_the_projects_own_is_no_change(source: str) -> None:
    assert not changes(source)
