"""env_template and the code name the same environment variables.

The code's names come from its syntax trees: os.environ[...], .get, .setdefault, .pop, `in os.environ`, os.getenv,
typer's envvar=, and ${NAME:-default} in shell scripts. A name that is not a literal is followed to module constants and
to what a loop runs over; a read that cannot be followed fails. COMMON_ENV and CPU_ENV are set by the program with
setdefault, so a user's value stays: they count as read. FIXED_ENV it sets whatever a user says: it is left out.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import dotenv
import pytest

from foundation.environment import FIXED_ENV

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "foundation",
    "sql_agent",
    "agl_plugin",
    "reward_client",
    "reward_model",
    "utils",
    "recipes",
    "benchmarks",
    "docs",
)
TEMPLATE = (ROOT / "env_template").read_text(encoding="utf-8")
LINE = re.compile(r"^#([A-Za-z]\w*)=(.*)$", re.M)
# Of the system and of Python: passed on to child processes, or followed; nothing for a user to set here.
SYSTEM = {"LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME"}
SYSTEM |= {"PATH", "PYENV_ROOT", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
SYSTEM |= {"CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"}
# Programs for other environments: what they read is what a run tells them.
OTHERS = ROOT / "docs" / "agents"
# What verl tells each of its workers.
OF_RANKS = {"RANK", "WORLD_SIZE", "MASTER_PORT"}
# Read by libraries, not by this code: the file of the installed package that names it.
LIBRARIES = {
    "WANDB_BASE_URL": "wandb/env.py",
    "HF_ENDPOINT": "huggingface_hub/constants.py",
    "HF_TOKEN": "huggingface_hub/utils/_auth.py",
    "AGL_SERVER_HOST": "agentlightning/env_var.py",
    "HTTP_PROXY": "httpx/_utils.py",
    "HTTPS_PROXY": "httpx/_utils.py",
}


SWANLAB_KEY = "SWANLAB_API_KEY"  # put together of a prefix and a field's name


class Unresolved(Exception):
    """A read whose name cannot be told from the source."""


class Module:
    """The constants and loop variables of one source file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.constants: dict[str, ast.expr] = {}
        self.imports: dict[str, str] = {}
        self.loops: dict[str, list[tuple[ast.expr, int | None]]] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.constants[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                self.constants[node.target.id] = node.value
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                self.imports |= {alias.asname or alias.name: node.module for alias in node.names}
            elif isinstance(node, ast.For | ast.comprehension):
                self._bind(node.target, node.iter)
            elif isinstance(node, ast.FunctionDef) and node.args.vararg:  # a configuration names these
                self.constants.setdefault(node.args.vararg.arg, ast.Tuple([]))

    def _bind(self, target: ast.expr, values: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.loops.setdefault(target.id, []).append((values, None))
        elif isinstance(target, ast.Tuple):
            for place, part in enumerate(target.elts):
                if isinstance(part, ast.Name):
                    self.loops.setdefault(part.id, []).append((values, place))

    def texts(self, node: ast.expr, place: int | None = None) -> set[str]:
        """The strings that an expression stands for; of `d.items()` the keys (place 0) or the values (1)."""
        match node:
            case ast.Constant(value=str(text)):
                return {text}
            case ast.Name(id=name):
                return self._named(name, place)
            case ast.Starred(value=inner):
                return self.texts(inner, place)
            case ast.IfExp(body=one, orelse=other):
                return self.texts(one, place) | self.texts(other, place)
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return set().union(*(self.texts(part) for part in parts))
            case ast.Dict(keys=keys, values=values):
                pairs = [(key or value, value) for key, value in zip(keys, values, strict=True)]
                return set().union(
                    *(self.texts(value if place == 1 and key is not value else key, place) for key, value in pairs)
                )
            case ast.Call(func=ast.Attribute(value=inner, attr="items")):
                return self.texts(inner, place)
            case ast.Call(func=ast.Attribute(value=inner, attr="values")):
                return self.texts(inner, 1)
        raise Unresolved(f"{self.path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")

    def _named(self, name: str, place: int | None) -> set[str]:
        if name in self.loops:
            return set().union(*(self.texts(values, at) for values, at in self.loops[name]))
        if name in self.constants:
            return self.texts(self.constants[name], place)
        if name in self.imports:
            spec = importlib.util.find_spec(self.imports[name])
            if spec and spec.origin and Path(spec.origin).is_relative_to(ROOT):
                return Module(Path(spec.origin))._named(name, place)
        raise Unresolved(f"{self.path.relative_to(ROOT)}: {name}")


def is_environ(node: ast.expr) -> bool:
    return ast.unparse(node) in ("os.environ", "environ")


def reads(module: Module) -> list[ast.expr]:
    """The expressions that name a variable where the environment is read."""
    found: list[ast.expr] = []
    for node in ast.walk(module.tree):
        match node:
            case ast.Subscript(value=value, slice=name, ctx=ast.Load()) if is_environ(value):
                found.append(name)
            case ast.Call(func=ast.Attribute(value=value, attr="get" | "setdefault" | "pop"), args=[name, *_]) if (
                is_environ(value)
            ):
                found.append(name)
            case ast.Call(func=function, args=[name, *_]) if ast.unparse(function) in ("os.getenv", "getenv"):
                found.append(name)
            case ast.Compare(left=name, ops=[ast.In() | ast.NotIn()], comparators=[value]) if is_environ(value):
                found.append(name)
            case ast.keyword(arg="envvar", value=name):
                found.append(name)
    return found


def sources(pattern: str) -> list[Path]:
    top = [path for path in ROOT.glob(pattern) if path.is_file()]
    below = [path for folder in FOLDERS for path in (ROOT / folder).rglob(pattern)]
    return sorted(path for path in top + below if OTHERS not in path.parents)


def names_in_code() -> set[str]:
    names: set[str] = set()
    for path in sources("*.py"):
        module = Module(path)
        names |= set().union(*(module.texts(name) for name in reads(module)))
    for path in sources("*.sh"):
        names |= set(re.findall(r"\$\{([A-Z][A-Z0-9_]*)(?=:?-)", path.read_text(encoding="utf-8")))
    # Proxy variables are read in lower case too.
    return {name for name in names if not name.islower() or name.upper() not in names} - {
        *SYSTEM,
        *OF_RANKS,
        *FIXED_ENV,
    }


def names_in_template() -> list[str]:
    return [match[1] for match in LINE.finditer(TEMPLATE)]


@pytest.mark.long
def test_every_variable_of_the_code_is_in_the_template() -> None:
    assert names_in_code() - set(names_in_template()) == set()


@pytest.mark.long
def test_every_variable_of_the_template_is_read() -> None:
    assert set(names_in_template()) - names_in_code() - {*LIBRARIES, SWANLAB_KEY} == set()


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_library_still_reads_it(name: str) -> None:
    package, _, file = LIBRARIES[name].partition("/")
    spec = importlib.util.find_spec(package)
    assert spec and spec.submodule_search_locations
    assert name in (Path(spec.submodule_search_locations[0]) / file).read_text(encoding="utf-8")
    assert name in names_in_template()


def test_swanlab_still_reads_its_key() -> None:
    code = "from swanlab.sdk.internal.settings import Settings; print(Settings().api_key)"
    environment = {**os.environ, SWANLAB_KEY: "mine"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["mine"], done.stderr
    assert SWANLAB_KEY in names_in_template()


def test_each_variable_has_one_line_in_both_languages() -> None:
    names = names_in_template()
    assert len(names) == len(set(names))
    lines = TEMPLATE.splitlines()
    for number, line in enumerate(lines):
        if LINE.match(line):
            comment = lines[number - 1]
            assert re.match(r"# \S.*[A-Za-z]{3}.*\|.*[\u4e00-\u9fff]", comment), f"above {line}: {comment!r}"


def test_an_unedited_copy_sets_nothing_and_holds_no_secret() -> None:
    assert dotenv.dotenv_values(ROOT / "env_template") == {}
    assert all(not value for name, value in LINE.findall(TEMPLATE) if name.endswith(("KEY", "TOKEN")))


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import os\nos.environ['A']; os.environ.get('B'); os.getenv('C', ''); os.environ['D'] = '1'", {"A", "B", "C"}),
        ("import os\nX = 'A'\nos.environ.setdefault(X, '1')", {"A"}),
        ("import os\nX = {'k': 'A', 'l': 'B'}\n[os.environ.get(n) for _, n in X.items()]", {"A", "B"}),
        (
            "import os\nX = {'A': '1'}\nfor n, v in {**X, **(X if 1 else {})}.items(): os.environ.setdefault(n, v)",
            {"A"},
        ),
        ("import os\nX = {'A': 1}\n{k: os.environ[k] for k in (*X, 'B') if k in os.environ}", {"A", "B"}),
        ("main(envvar='A')", {"A"}),
    ],
)
def test_reads_are_found(tmp_path: Path, source: str, names: set[str]) -> None:
    path = tmp_path / "m.py"
    path.write_text(source)
    module = Module(path)
    assert set().union(*(module.texts(name) for name in reads(module))) == names


def test_a_read_that_cannot_be_followed_is_an_error() -> None:
    module = Module(ROOT / "utils" / "check_install.py")
    with pytest.raises(Unresolved, match="check_install.py"):
        module.texts(ast.parse("a + b", mode="eval").body)
