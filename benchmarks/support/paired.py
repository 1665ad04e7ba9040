"""What a patch saves, measured where a run makes its calls: now and then one is made both ways, on the same arguments.

`at_start(folder)` is the text of a sitecustomize.py that measures in each process of a run. A process writes
`<patch>-<pid>.json`: its `calls`, and `pairs` of seconds saved (wall clock, CPU of the calling thread). The order of
the two takes turns, and the first pair of a process warms up and does not count. Results are those of the patched
function.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import wrapt

OFTEN = 20  # a pair each so many calls
WRITE_EVERY_S = 0.2
# Names whose patch shows in another function of the register.
PART_OF_ANOTHER = {"random_sample"}


def at_start(folder: Path, root: Path) -> str:
    """The text of a sitecustomize.py. Only processes that make patches import more than this module."""
    return (
        f"import sys\nsys.path.insert(0, {str(root)!r})\n"
        f"from benchmarks.support.paired import begin\nbegin({str(folder)!r})\n"
    )


def begin(folder: str) -> None:
    """Measure in this process, once it makes patches."""
    wrapt.register_post_import_hook(lambda module: _watch(module, Path(folder)), "agl_plugin.patches.install")


def _watch(installer: Any, folder: Path) -> None:
    make = installer._make

    def making(patch: Any, module: Any) -> None:
        places = [installer.owner_of(patch, target) for target in patch.targets] if patch.speed else []
        theirs = [getattr(owner, name) for owner, name in places]
        make(patch, module)
        for (owner, name), original in zip(places, theirs, strict=True):
            if name not in PART_OF_ANOTHER and getattr(owner, name) is not original:
                setattr(owner, name, paired(patch.name, original, getattr(owner, name), folder))

    installer._make = making


class Notes:
    """Calls and pairs of one patch in one process, written down now and then."""

    def __init__(self, path: Path) -> None:
        self.path, self.calls, self.written_s = path, 0, 0.0
        self.pairs: list[tuple[float, float]] = []

    def write(self) -> None:
        """All so far."""
        self.written_s = time.monotonic()
        self.path.write_text(json.dumps({"calls": self.calls, "pairs": self.pairs[1:]}))


def paired(patch: str, theirs: Callable[..., Any], ours: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    """`ours`, and now and then both."""
    notes: dict[int, Notes] = {}

    def timed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, float, float]:
        wall_s, cpu_s = time.perf_counter(), time.thread_time()
        result = function(*args, **kwargs)
        return result, time.perf_counter() - wall_s, time.thread_time() - cpu_s

    @functools.wraps(ours, assigned=("__name__", "__doc__"))
    def both(*args: Any, **kwargs: Any) -> Any:
        noted = notes.setdefault(pid := os.getpid(), Notes(folder / f"{patch}-{pid}.json"))
        noted.calls += 1
        if noted.calls % OFTEN:
            if time.monotonic() - noted.written_s > WRITE_EVERY_S:
                noted.write()
            return ours(*args, **kwargs)
        order = [ours, theirs] if len(noted.pairs) % 2 else [theirs, ours]
        found = {function: timed(function, *args, **kwargs) for function in order}
        (result, *mine), (_, *original) = found[ours], found[theirs]
        noted.pairs.append((original[0] - mine[0], original[1] - mine[1]))
        noted.write()
        return result

    return both
