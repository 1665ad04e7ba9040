"""The base of all configuration sections, and of their keys."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

OFF = ("", "off", 0)


class Node(BaseModel):
    """Base of all configuration sections: immutable, unknown keys and infinite numbers are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="after")
    def _checked(self) -> Self:
        if problem := next(itertools.chain(self._idle_keys(), self.problems()), ""):
            raise ValueError(problem)
        return self

    def problems(self) -> Iterable[str]:
        """What does not go together, with what to do about it; the first is told."""
        return ()

    def _idle_keys(self) -> Iterator[str]:
        for name, field in type(self).model_fields.items():
            extra: Any = field.json_schema_extra or {}
            owners = [owner.rpartition(".") for owner in extra.get("of", "").split()]
            value = getattr(self, name)
            if owners and value != field.default and all(getattr(self, key) in OFF for _, _, key in owners):
                needed = extra["of"].replace(" ", " or ")
                yield f"{owners[0][0]}.{name} = {value!r:.200} has nothing to do: set {needed}, or leave it out"


def option(default: Any, meaning: str, *, of: str = "", **bounds: Any) -> Any:
    """A key of a section: its default, what it means (docs/10-configuration.md shows that) and pydantic's bounds.

    `of` are keys of its section, as "optim.kl_coef", without one of which it has no effect.
    """
    return Field(default=default, description=meaning, json_schema_extra={"of": of}, **bounds)
