"""Who may import whom: the rooms of the house, checked on the syntax trees of all project modules.

A room is a package, or a module beside the rooms; a line of LAYERS holds rooms that do not know each other. Imports
inside functions count like any other. Not covered: names reached through strings (utils/check_install.py).
A new module fails here until its room has a place in LAYERS.
"""

from __future__ import annotations

import ast
import graphlib
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from sql_agent.config import ROOT

# From the ground up: a room imports from itself and from the lines above its own, nothing else.
LAYERS = [
    ["foundation"],
    [
        *("sql_agent.config", "sql_agent.errors", "sql_agent.records", "reward_client", "agl_plugin.cpu"),
        *("sql_agent.testing", "sql_agent.words"),
    ],
    [
        "sql_agent.environment",
        "sql_agent.data",
        "sql_agent.offline_judge",
        "reward_model",
        "agl_plugin.patches",
        "agl_plugin.launcher",
    ],
    ["sql_agent.scoring", "sql_agent.judge_audit", "sql_agent.curation", "agl_plugin.proxy", "agl_plugin.store"],
    ["sql_agent.agent", "sql_agent.scorers", "agl_plugin.update"],
    ["sql_agent.tiny_policy", "agl_plugin.run", "agl_plugin.audit"],
    ["sql_agent.serving", "sql_agent.mining", "agl_plugin"],
    ["sql_agent.evaluation", "sql_agent.training", "sql_agent.run_audit"],
    ["sql_agent.run_report", "sql_agent.tuning"],
    ["sql_agent.local"],
    ["sql_agent.commands"],
    ["sql_agent.api", "sql_agent.cli", "utils"],
    ["benchmarks"],
    ["recipes", "sql_agent.alias", "sql_agent.__main__"],
    ["docs"],
]

# Project package -> packages that it must not import, whatever the layers say.
NEVER = {
    "reward_client": ["sql_agent", "agl_plugin", "reward_model"],
    "reward_model": ["sql_agent", "agl_plugin"],
    "agl_plugin": ["sql_agent", "reward_client", "reward_model"],
    "sql_agent": ["reward_model"],
}

# Third-party package -> the only modules that may import it.
ONLY_IN = {
    "agentlightning": [
        "agl_plugin.*",
        "sql_agent.training.lit_agent",
        "sql_agent.training.assembly",
        "benchmarks.audit",
        "benchmarks.scale",
        "benchmarks.traffic",
        "benchmarks.store",
    ],
    "verl": ["agl_plugin.*"],
    "ray": ["agl_plugin.*"],
    "mcp": ["sql_agent.agent.mcp_session", "sql_agent.agent.mcp_tools", "sql_agent.commands.mcp_server"],
    "agents": [
        "sql_agent.agent.call_ids",
        "sql_agent.agent.conversation",
        "sql_agent.agent.episode",
        "sql_agent.agent.long_context",
        "sql_agent.agent.own_tools",
        "sql_agent.api.*",
    ],
    "trl": [
        *("reward_model.reward_modeling", "sql_agent.tuning.trainers"),
    ],
    "fastapi": ["reward_model.api", "sql_agent.serving.page", "agl_plugin.store.server"],
    "nicegui": ["sql_agent.serving.page"],
    "inspect_ai": ["sql_agent.evaluation.inspect_log"],
}

LIGHT = [
    *("sql_agent", "reward_client", "sql_agent.scorers", "sql_agent.data.dataset", "sql_agent.environment.database"),
    *("reward_model", "reward_model.convert_dpo_format", "reward_model.mine_pairs", "reward_model.bundled_pairs"),
    *("foundation.console", "foundation.run_folder", "foundation.environment", "sql_agent.cli", "sql_agent.api"),
    *("sql_agent.commands.train", "sql_agent.commands.tune", "sql_agent.tuning.job", "sql_agent.tuning.arguments"),
]
HEAVY = ["torch", "ray", "vllm", "verl", "agentlightning", "transformers"]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def project_files() -> Iterator[Path]:
    packages = ("foundation", "sql_agent", "agl_plugin", "reward_client", "reward_model")
    for folder in (*packages, "utils", "recipes", "benchmarks", "docs"):
        yield from (path for path in (ROOT / folder).rglob("*.py") if not path.is_symlink())


MODULES = {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in project_files()}


def imports_of(tree: ast.Module) -> set[str]:
    """Dotted names of what a module imports; `from package import module` gives package.module."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write absolute imports"
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in MODULES else str(node.module) for name in full}
    return names


HEIGHT = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}


def room_of(module: str) -> str:
    """The longest prefix of the module's name that is a room."""
    parts = module.split(".")
    found = [room for n in range(len(parts), 0, -1) if (room := ".".join(parts[:n])) in HEIGHT]
    assert found, f"{module} has no room in LAYERS of {Path(__file__).name}: put it into one, or add its room"
    return found[0]


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_downward(module: str) -> None:
    if module == "sql_agent":
        return
    room = room_of(module)
    for name in imports_of(MODULES[module]) & MODULES.keys():
        other = room_of(name)
        assert other == room or HEIGHT[other] < HEIGHT[room], f"{module} imports {name}, which is no lower room"


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {module: imports_of(tree) & MODULES.keys() - {module} for module, tree in MODULES.items()}
    list(graphlib.TopologicalSorter(graph).static_order())  # CycleError names the circle


def test_every_room_is_there() -> None:
    assert {room for room in HEIGHT if room not in {room_of(m) for m in MODULES if m != "sql_agent"}} == set()


@pytest.mark.parametrize("package", sorted(NEVER))
def test_packages_keep_apart(package: str) -> None:
    for module, tree in MODULES.items():
        if module.split(".")[0] == package:
            bad = {name for name in imports_of(tree) if name.split(".")[0] in NEVER[package]}
            assert not bad, f"{module} imports {sorted(bad)}"


def test_only_tests_import_tests() -> None:
    assert [module for module, tree in MODULES.items() if "tests" in {n.split(".")[0] for n in imports_of(tree)}] == []


@pytest.mark.parametrize("library", sorted(ONLY_IN))
def test_heavy_libraries_have_one_home(library: str) -> None:
    users = {m for m, tree in MODULES.items() if library in {name.split(".")[0] for name in imports_of(tree)}}
    strangers = {m for m in users if not any(fnmatch(m, pattern) for pattern in ONLY_IN[library])}
    assert users and not strangers, f"{sorted(strangers)} must not import {library}"


def test_few_functions_take_the_whole_configuration() -> None:
    """A part takes its section, what plays the agents' tree; a number that falls is written here."""
    takers = [
        module
        for module, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for one in (*node.args.args, *node.args.kwonlyargs)
        if one.annotation and ast.unparse(one.annotation) == "TrainConfig"
    ]
    assert len(takers) <= 34 and len(set(takers)) <= 16, sorted(set(takers))


def test_every_exception_stands_in_the_one_tree() -> None:
    drawn = set(re.findall(r"\w+", ast.get_docstring(MODULES["foundation.errors"]) or ""))
    classes = [(m, node) for m, tree in MODULES.items() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    bases = {(module, node.name): {ast.unparse(base) for base in node.bases} for module, node in classes}
    pythons, ours = {"Exception", "BaseException", "ValueError", "RuntimeError", "OSError"}, set[str]()
    while more := {name for (_, name), of in bases.items() if of & (ours | pythons)} - ours:
        ours |= more
    assert len(ours) > 30 and ours - drawn == set()
    alone = {f"{module}.{name}" for (module, name), of in bases.items() if of & pythons and not of & ours}
    children = ("sql_agent.environment.sql_worker.", "sql_agent.environment.sandbox.", "sql_agent.agent.own_child.")
    assert {name for name in alone if not name.startswith(children)} == {"foundation.errors.AgentGRPOError"}


@pytest.mark.parametrize("module", LIGHT)
def test_start_up_is_light(module: str) -> None:
    code = f"import sys, {module}; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


@pytest.mark.parametrize("package", ["sql_agent", "reward_model"])
def test_no_module_shadows_a_package(package: str) -> None:
    """`cd sql_agent && python train_sql_agent.py` puts sql_agent/ first on the path."""
    own = {path.stem for path in (ROOT / package).iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    taken = importlib.metadata.packages_distributions().keys() | sys.stdlib_module_names
    assert (own - {"__init__"}) & taken == set()
