"""The base of all configuration sections, and of their keys."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Node(BaseModel):
    """Base of all configuration sections: immutable, unknown keys and infinite numbers are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def option(default: Any, meaning: str, **bounds: Any) -> Any:
    """A key of a section: its default, what it means (docs/10-configuration.md shows that) and pydantic's bounds."""
    return Field(default=default, description=meaning, **bounds)
