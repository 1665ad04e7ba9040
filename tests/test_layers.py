"""Who may import whom: the table of the architecture, checked on the syntax trees of all project modules.

Imports inside functions count like any other. Not covered: names reached through strings (utils/check_install.py).
A new module fails here until it has a place in LAYERS.
"""

from __future__ import annotations

import ast
import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from sql_agent.config import ROOT

# A module imports from the lines above its own; `x.*` are packages whose modules may also import one another.
LAYERS = {
    "judge's types": ["reward_client.schema"],
    "errors": ["sql_agent.errors", "reward_client.errors"],
    "normal form": ["sql_agent.reference_normal"],
    "plain data": [
        *("sql_agent.records", "sql_agent.config", "sql_agent.reference_text", "sql_agent.answer_text"),
        *("sql_agent.transcript", "sql_agent.eval_stats"),
    ],
    "worker process": ["sql_agent.sql_worker", "sql_agent.math_worker"],
    "parts of the offline judge": [
        *("sql_agent.reference_stance", "sql_agent.reference_exam", "sql_agent.reference_table"),
    ],
    "items of the offline judge": ["sql_agent.reference_item"],
    "text and wire": [
        *("sql_agent.sql_text", "sql_agent.reference_judge", "sql_agent.completion_check", "reward_client.client"),
        *("reward_client.gates", "reward_client.prompting", "reward_client.parsing", "reward_client.dialect"),
        *("reward_client.endpoints", "reward_client.ledger", "reward_client.scale_map"),
        *("sql_agent.math_check", "sql_agent.result_match", "sql_agent.judge_items"),
        *("sql_agent.eval_measures", "sql_agent.eval_view"),
    ],
    "sources": [
        *("sql_agent.database", "sql_agent.dataset", "reward_client.limiter", "reward_client.budget"),
        *("reward_client.reward_model", "sql_agent.judge_metrics"),
    ],
    "retry loop": ["reward_client.chain"],
    "judge": ["reward_client.judge"],
    "groups": ["reward_client.groups"],
    "table of scorers": ["sql_agent.scorer_registry"],
    "tools and scorers": ["sql_agent.tools", "sql_agent.scorers", "sql_agent.data.*", "reward_client"],
    "agent": ["sql_agent.agent", "sql_agent.judge_view"],
    "agent-lightning and verl": ["agl_plugin.*"],
    "around the agent": [
        "sql_agent.verl_config",
        *("sql_agent.lit_agent", "sql_agent.tiny_policy.*", "sql_agent.summary", "sql_agent.endpoint"),
        *("sql_agent.group_grading", "sql_agent.health_rules", "sql_agent.versions"),
        *("sql_agent.episode_view", "sql_agent.serving", "sql_agent.eval_progress", "sql_agent.checkpoint_model"),
    ],
    "reward model": ["reward_model.*"],
    "before the start": ["sql_agent.preflight", "sql_agent.run_report.*"],
    "report": ["sql_agent.report"],
    "trials": ["sql_agent.evaluation", "sql_agent.eval_targets", "sql_agent.eval_log"],
    "evaluations": ["sql_agent.eval_folder", "sql_agent.eval_plan"],
    "command lines": [
        *("sql_agent.train_sql_agent", "sql_agent.evaluate", "sql_agent.sqlagent_test"),
        *("sql_agent.export", "sql_agent.demo", "sql_agent.judge_report"),
    ],
    "nobody imports these": [
        "utils.*",
        "benchmarks.*",
        "recipes.*",
        "docs.*",
        "sql_agent",
        "agl_plugin",
    ],
}

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
        *("agl_plugin.*", "sql_agent.lit_agent", "sql_agent.verl_config", "sql_agent.train_sql_agent"),
        "benchmarks.stock",
    ],
    "verl": ["agl_plugin.*", "sql_agent.verl_config"],
    "ray": ["agl_plugin.*"],
    "agents": ["sql_agent.agent", "sql_agent.tools"],
    "trl": ["reward_model.reward_modeling"],
    "fastapi": ["reward_model.api"],
    "inspect_ai": ["sql_agent.eval_log"],
}

LIGHT = [
    *("sql_agent", "reward_client", "sql_agent.scorers", "sql_agent.dataset", "sql_agent.database"),
    *("reward_model", "reward_model.convert_dpo_format", "reward_model.mine_pairs", "reward_model.bundled_pairs"),
    *("agl_plugin.console", "agl_plugin.run_folder", "agl_plugin.environment", "sql_agent.train_sql_agent"),
]
HEAVY = ["torch", "ray", "vllm", "verl", "agentlightning", "transformers"]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def project_files() -> Iterator[Path]:
    for folder in (
        "sql_agent",
        "agl_plugin",
        "reward_client",
        "reward_model",
        "utils",
        "recipes",
        "benchmarks",
        "docs",
    ):
        yield from (ROOT / folder).rglob("*.py")


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


def place(module: str) -> tuple[int, str]:
    """Number of the layer and the pattern that matched; a name without wildcard wins."""
    found = [
        ("*" in pattern, number, pattern)
        for number, patterns in enumerate(LAYERS.values())
        for pattern in patterns
        if fnmatch(module, pattern) or module == pattern.removesuffix(".*")
    ]
    assert found, f"{module} has no place in LAYERS of {Path(__file__).name}: add it where it belongs"
    return min(found)[1:]


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_downward(module: str) -> None:
    layer, package = place(module)
    for name in imports_of(MODULES[module]) & MODULES.keys():
        below, other = place(name)
        same_package = "*" in package and other == package
        assert below < layer or same_package, f"{module} imports {name}, which is not in a lower layer"


@pytest.mark.parametrize("package", sorted(NEVER))
def test_packages_keep_apart(package: str) -> None:
    for module, tree in MODULES.items():
        if module.split(".")[0] == package:
            bad = {name for name in imports_of(tree) if name.split(".")[0] in NEVER[package]}
            assert not bad, f"{module} imports {sorted(bad)}"


@pytest.mark.parametrize("library", sorted(ONLY_IN))
def test_heavy_libraries_have_one_home(library: str) -> None:
    users = {m for m, tree in MODULES.items() if library in {name.split(".")[0] for name in imports_of(tree)}}
    strangers = {m for m in users if not any(fnmatch(m, pattern) for pattern in ONLY_IN[library])}
    assert users and not strangers, f"{sorted(strangers)} must not import {library}"


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
