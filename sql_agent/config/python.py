"""Section `python`: what the tool `python` may import, and the limits of one run."""

from __future__ import annotations

from pydantic import Field, field_validator

from sql_agent.config.node import Node

MODULES = ["math", "cmath", "itertools", "fractions", "decimal", "statistics", "functools", "collections"]
MODULES += ["operator", "random", "datetime", "bisect", "heapq"]


class PythonConfig(Node):
    """What the tool `python` may import, and the limits of one run."""

    modules: list[str] = Field(default=MODULES, description="modules that code may import, of these")
    cpu_s: float = Field(default=2.0, gt=0, le=60, description="processor time of one run")
    max_memory_mib: int = Field(default=128, ge=16, description="memory one run may use (growth of its process)")

    @field_validator("modules")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        if unknown := [name for name in names if name not in MODULES]:
            raise ValueError(
                f"python.modules: {unknown[0]!r} is none of {', '.join(MODULES)}; make a tool of what it gives"
            )
        return names
