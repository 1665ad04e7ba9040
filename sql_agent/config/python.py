"""Section `python`: what the tool `python` may import, and the limits of one run."""

from __future__ import annotations

from pydantic import field_validator

from sql_agent.config.node import Node, option

MODULES = ["math", "cmath", "itertools", "fractions", "decimal", "statistics", "functools", "collections"]
MODULES += ["operator", "random", "datetime", "bisect", "heapq"]


class PythonConfig(Node):
    """What the tool `python` may import, and the limits of one run."""

    modules: list[str] = option(MODULES, "modules that code may import, of these")
    cpu_s: float = option(2.0, "processor time of one run", gt=0, le=60)
    max_memory_mib: int = option(128, "memory one run may use (growth of its process)", ge=16)

    @field_validator("modules")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        if unknown := [name for name in names if name not in MODULES]:
            raise ValueError(
                f"python.modules: {unknown[0]!r} is none of {', '.join(MODULES)}; make a tool of what it gives"
            )
        return names
