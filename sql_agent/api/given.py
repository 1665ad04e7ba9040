"""Functions that programs have in hand, as commands can read them: files below .cache.

Guarantees: what cannot be passed on is a UserError that names it, before anything starts.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import sysconfig
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

from foundation.errors import UserError
from foundation.files import atomic_path, write_text
from sql_agent.config import HOME, ROOT

MODULE = '''\
"""{name}, as a program gave it to sql_agent.api."""

from pathlib import Path

import cloudpickle

{name} = cloudpickle.loads(Path(__file__).with_suffix(".pkl").read_bytes())
'''


def tool_sources(tools: Any) -> list[str]:
    """Of one tool, of several or of none. Raises UserError."""
    several = tools if isinstance(tools, list | tuple) else [tools] if tools else []
    return [tool_source(tool) for tool in several]


def tool_source(tool: Any) -> str:
    """The entry of `agent.tools` for a tool: a name or path as it is, or a function, FunctionTool or class."""
    if isinstance(tool, str | Path):
        return str(tool)
    name = str(getattr(tool, "__name__", "") or getattr(tool, "name", "") or type(tool).__name__)
    if not name.isidentifier() or not (callable(tool) or hasattr(tool, "params_json_schema")):
        raise UserError(f"tools: {tool!r:.80}: give a typed function with a name, a FunctionTool or a class with reset")
    module = sys.modules.get(getattr(tool, "__module__", ""))
    file = getattr(module, "__file__", None)
    is_beside = module and not module.__package__ and module.__name__ != "__main__"
    if file and is_beside and getattr(module, name, None) is tool:
        return f"{Path(file).resolve()}:{name}"
    typed_tool = _with_types(tool) if isinstance(tool, types.FunctionType) else tool
    return f"{keep(typed_tool, name=name, folder='tools', uses=tool)}:{name}"


def keep(thing: Any, *, name: str, folder: str, uses: Any) -> Path:
    """A module below .cache from which another process can import `thing`, with the code that it uses, by its name.

    Raises UserError.
    """
    try:
        import cloudpickle

        with _by_value(uses, cloudpickle):
            data = cloudpickle.dumps(thing)
    except ModuleNotFoundError:
        raise UserError(
            "cloudpickle is not installed; it comes with the extras cpu and gpu, which training needs"
        ) from None
    except Exception as exc:  # pickling may raise anything
        raise UserError(f"{name!r}: cannot be kept for the training process ({exc!r:.200})") from exc
    path = HOME / ".cache" / "api" / folder / hashlib.sha256(data).hexdigest()[:12] / f"{name}.py"
    with atomic_path(path.with_suffix(".pkl")) as temp:
        temp.write_bytes(data)
    write_text(path, MODULE.format(name=name))
    return path


@contextlib.contextmanager
def _by_value(thing: Any, cloudpickle: Any) -> Iterator[None]:
    """Take along the code of a module that the training process could not import: one that is not installed."""
    module = sys.modules.get(getattr(thing, "__module__", ""))
    file = getattr(module, "__file__", None)
    homes = [Path(path) for path in (*sysconfig.get_paths().values(), ROOT)]
    is_ours = file and any(Path(file).resolve().is_relative_to(home.resolve()) for home in homes)
    if not file or is_ours or getattr(module, "__name__", "") == "__main__":
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _with_types(function: types.FunctionType) -> types.FunctionType:
    """A copy whose types stand in it as types: as text they would be looked for in a module that is not there."""
    copy = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__dict__ |= vars(function)
    copy.__doc__, copy.__kwdefaults__, copy.__module__ = function.__doc__, function.__kwdefaults__, function.__module__
    try:
        copy.__annotations__ = get_type_hints(function, include_extras=True)
    except NameError as exc:
        raise UserError(f"tools: {function.__name__}: a type cannot be found ({exc})") from exc
    return copy
