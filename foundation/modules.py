"""Modules of the user: dotted names, and files that are in no package. Modules of others that must not be loaded."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from zlib import crc32

_loaded: dict[Path, ModuleType] = {}


def import_module(name: str) -> ModuleType:
    """The module of a dotted name, or of the path of a .py file, loaded once. Raises what the module raises."""
    if not name.endswith(".py"):
        return importlib.import_module(name)
    path = Path(name).resolve()
    if path not in _loaded:
        spec = importlib.util.spec_from_file_location(f"user_file_{path.stem}_{crc32(bytes(path)):08x}", path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # a dataclass looks its module up there
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[spec.name]
            raise
        _loaded[path] = module
    return _loaded[path]


@contextmanager
def hidden(*names: str) -> Iterator[None]:
    """What is imported within takes these packages for not installed, unless they are loaded already."""
    absent = [name for name in names if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # pyright: ignore[reportArgumentType]  find_spec and import both heed it
    try:
        yield
    finally:
        for name in absent:
            sys.modules.pop(name, None)
