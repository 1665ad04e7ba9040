"""What decides the tiny policy, as one fingerprint: words, prompt, chat template, the code that trains, and the seed.

Guarantees: comments, docstrings and the layout of code do not change it. Light: nothing is trained, no torch.
Not covered: versions of libraries and the machine type, which move the weights a little.
"""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
AGENT = HERE.parent
CODE = ("asking", "corpus", "demos", "tokenizer", "train", "wired")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def source_files() -> list[Path]:
    """All files that decide what the policy becomes."""
    data = AGENT / "data"
    words = [data / "templates.yaml", AGENT / "prompts" / "system_short.txt"]
    own = [HERE / "chat_template.jinja", HERE / "words.yaml", *(HERE / f"{name}.py" for name in CODE)]
    return [*sorted(data.glob("source/*/*.yaml")), *words, *own]


def fingerprint(seed: int) -> str:
    """16 hex digits over the sources and the seed."""
    digest = hashlib.sha256(f"seed {seed}".encode())
    for path in source_files():
        content = path.read_bytes()
        if path.suffix == ".py":
            content = bare_code(content.decode()).encode()
        digest.update(f"{path.relative_to(AGENT).as_posix()} {len(content)} ".encode() + content)
    return digest.hexdigest()[:16]


def bare_code(source: str) -> str:
    """The code without comments, docstrings and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)
