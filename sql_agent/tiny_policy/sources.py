"""What decides a tiny policy, as one fingerprint: the task's sources, the code that trains, and the seed.

Guarantees: comments, docstrings and the layout of code do not change it. Light: nothing is trained, no torch.
Not covered: versions of libraries and the machine type, which move the weights a little.
"""

from __future__ import annotations

import ast
import hashlib
import re
from pathlib import Path

from sql_agent.tiny_policy.task import AGENT, MAKERS, TinyTask

# The wheel has the checkout's other packages beneath sql_agent: its code, and so its tiny policy, is the same.
INSTALLED = re.compile(r"\bsql_agent\.(?=(?:foundation|reward_client|agl_plugin|recipes)\b)")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def fingerprint(seed: int, task: TinyTask) -> str:
    """16 hex digits over the sources and the seed."""
    digest = hashlib.sha256(f"seed {seed}".encode())
    for path in [*MAKERS, *task.sources]:
        content = path.read_bytes()
        if path.suffix == ".py":
            content = bare_code(content.decode()).encode()
        digest.update(f"{_name(path)} {len(content)} ".encode() + content)
    return digest.hexdigest()[:16]


def _name(path: Path) -> str:
    own = path.is_relative_to(AGENT) and not path.is_relative_to(AGENT / "recipes")
    return path.relative_to(AGENT).as_posix() if own else path.name


def bare_code(source: str) -> str:
    """The code without comments, docstrings and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return INSTALLED.sub("", ast.unparse(tree))
