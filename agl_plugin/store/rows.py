"""Pydantic models as rows: their JSON, a column for each plain field, and agent-lightning's filters as SQL.

Guarantees: a filter or an order that becomes SQL means what it means to agent-lightning's memory collections (text is
compared by code points, a missing time is the latest, other missing values are the least; of equal ones the
first inserted comes first, or the last where keys of several fields begin differently); what SQL cannot say
exactly is left to the caller (`Unsaid`). JSON is Python's, which keeps NaN and lone surrogates. Names come from the
models.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from agentlightning.store.collection.base import normalize_filter_options, resolve_sort_options
from pydantic import BaseModel

from foundation.errors import AgentGRPOError

SIMPLE = (str, int, float)
SHORT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
INFINITE = "9e999"  # in SQLite; postgres.py has its own word
NOTHING = {str: "''", int: "0", float: "0.0"}
# A zero byte, and lone surrogates: what is escaped sorts between the same neighbours, and no two texts become one.
ESCAPES = {0: "\1\1", 1: "\1\2", 0xD7FF: "\ud7ff\1"} | {0xD800 + n: f"\ud7ff{chr(0xE000 + n)}" for n in range(0x800)}
ESCAPED = re.compile("[\0-\2\ud7ff-\ue7ff]")  # what may be a part of an escape
MAX_LISTED = 10_000  # values of one `within`; a statement of SQLite has at most 32,766


class Unsaid(AgentGRPOError):
    """A filter or an order that SQL does not express as Python means it."""


@dataclass(frozen=True)
class Selection:
    """What follows FROM: a condition and an order, each with its values."""

    where: str
    values: tuple[Any, ...]
    order: str


def plain_type(annotation: Any) -> type | None:
    """str, int or float where a field holds nothing else, or None beside it."""
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = {plain_type(arg) for arg in get_args(annotation) if arg is not type(None)}
        return kinds.pop() if len(kinds) == 1 else None
    if get_origin(annotation) is Literal:
        return str if all(isinstance(value, str) for value in get_args(annotation)) else None
    return annotation if annotation in SIMPLE else None


def encodable(value: Any) -> Any:
    """A value for a column: text in the order of its code points, with what a database's text lacks as two others."""
    return value.translate(ESCAPES) if isinstance(value, str) else value


class Rows[T: BaseModel]:
    """How items of `model` with these keys stand in a table."""

    def __init__(self, model: type[T], keys: Sequence[str]) -> None:
        self.model, self.keys = model, tuple(keys)
        plain = {name: plain_type(field.annotation) for name, field in model.model_fields.items()}
        self.columns: dict[str, type] = {name: kind for name, kind in plain.items() if kind}

    def text(self, item: T) -> str:
        fields = item.model_dump()
        text = SHORT.encode(fields)
        try:
            text.encode()
        except UnicodeEncodeError:
            return json.dumps(fields, separators=(",", ":"))
        return text

    def item(self, text: str) -> T:
        return self.model.model_validate(json.loads(text))

    def values(self, item: T, names: Sequence[str]) -> list[Any]:
        return [encodable(getattr(item, name)) for name in names]

    def key_of(self, item: T) -> list[Any]:
        return self.values(item, self.keys)

    def key_text(self, item: T) -> str:
        """The key as error messages show it."""
        return ", ".join(f"{name}={getattr(item, name)!r}" for name in self.keys)

    def selection(self, filter: Any, sort: Any) -> Selection:
        """A filter and an order as SQL. Raises Unsaid, and ValueError for what agent-lightning refuses."""
        filters, must, logic = normalize_filter_options(filter)
        terms = [self._joined(must, "and")] if must else []
        if filters:
            terms.append(self._joined(filters, logic))
        where = " AND ".join(term for term, _ in terms) or "TRUE"
        required = dict(must or {})
        if logic == "and":
            required = {**(filters or {}), **required}
        has_one_parent = len(self.keys) == 1 or required.get(self.keys[0], {}).get("exact") is not None
        order = self._order(sort, equals="id" if has_one_parent else "id DESC")
        return Selection(where, tuple(value for _, values in terms for value in values), order)

    def _joined(self, filters: Mapping[str, Any], logic: str) -> tuple[str, list[Any]]:
        conditions = [
            self._term(field, how, wanted)
            for field, ways in filters.items()
            for how, wanted in ways.items()
            if wanted is not None
        ]
        nothing = "TRUE" if logic == "and" else "FALSE"  # all of none, any of none
        terms = f" {logic.upper()} ".join(term for term, _ in conditions) or nothing
        return f"({terms})", [value for _, values in conditions for value in values]

    def _term(self, field: str, how: str, wanted: Any) -> tuple[str, list[Any]]:
        kind = self.columns.get(field)
        if kind is None:
            raise Unsaid
        if how == "exact":
            return f'"{field}" = ?', [self._value(wanted, kind)]
        if how == "within" and isinstance(wanted, list | tuple | set | frozenset) and len(wanted) <= MAX_LISTED:
            listed = [self._value(value, kind) for value in wanted]
            return f'"{field}" IN ({", ".join("?" * len(listed))})' if listed else "FALSE", listed
        if how == "contains" and kind is str and isinstance(wanted, str) and not ESCAPED.search(wanted):
            return f'instr("{field}", ?) > 0', [self._value(wanted, kind)]
        raise Unsaid

    @staticmethod
    def _value(wanted: Any, kind: type) -> Any:
        if isinstance(wanted, str) and kind is str:
            return encodable(wanted)
        if kind is str or not isinstance(wanted, int) or isinstance(wanted, bool) or not -(2**63) <= wanted < 2**63:
            raise Unsaid
        return wanted

    def _order(self, sort: Any, *, equals: str) -> str:
        name, order = resolve_sort_options(sort)
        if not name:
            return "id"
        return f"{self.sorted_by(name)} {order}, {equals}"

    def sorted_by(self, name: str) -> str:
        """What a column is ordered by, word for word as an index must have it to be used. Raises Unsaid."""
        kind = self.columns.get(name)
        if kind is None:
            raise Unsaid
        return f'coalesce("{name}", {INFINITE if name.endswith("_time") else NOTHING[kind]})'
