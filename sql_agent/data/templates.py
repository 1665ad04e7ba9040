"""The words of the bundled questions (templates.yaml) as validated data.

Guarantees: ids and texts of phrasings are unique, labels of one table are unambiguous, and every placeholder can be
filled. Other code may use `load_templates` to phrase questions of its own; a phrasing serves only its own split.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field, ValidationError

from foundation.errors import UserError
from sql_agent.records import Record

Split = Literal["train", "val", "test"]
Intent = Literal["single", "multi", "compare", "search", "count"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
TEMPLATES = Path(__file__).resolve().parent / "templates.yaml"

PLACEHOLDERS: dict[Intent, set[str]] = {
    "single": {"name", "field"},
    "multi": {"name", "field_a", "field_b"},
    "compare": {"name_a", "name_b", "field"},
    "search": {"field", "value"},
    "count": {"field", "value"},
}


class Labels(Record):
    """What people call a field. `val` and `test` hold labels that training never shows."""

    train: list[str] = Field(min_length=1)
    val: list[str] = Field(min_length=1)
    test: list[str] = Field(min_length=1)

    def for_split(self, split: Split) -> list[str]:
        """The labels that questions of a split may use."""
        return self.train if split == "train" else [*self.train, *getattr(self, split)]

    def all(self) -> list[str]:
        """Every label, whatever its split."""
        return [*self.train, *self.val, *self.test]


class Table(Record):
    """A table that can be asked about: its kind of entity, its name column, its askable fields."""

    kind: str
    name: str
    fields: dict[str, Labels]


class Phrasing(Record):
    """One way to ask; `fields` (search, count) limits the fields, `n_fields` (multi) counts them."""

    id: str
    split: Split
    text: str
    fields: list[str] = []
    n_fields: int = 1


class Answer(Record):
    """The form of the reference answer: a `text`, or a `part` repeated for each field or entity."""

    part: str = ""
    text: str = ""


class Templates(Record):
    """The whole of templates.yaml."""

    tables: dict[str, Table]
    search: dict[str, list[str]]
    phrasings: dict[Intent, list[Phrasing]]
    answers: dict[Intent, Answer]

    def phrasings_for(self, intent: Intent, split: Split) -> list[Phrasing]:
        """The phrasings of one intent that a split may use."""
        return [phrasing for phrasing in self.phrasings[intent] if phrasing.split == split]


def load_templates(path: Path = TEMPLATES) -> Templates:
    """Read and check a template file. Raises UserError listing what is wrong with it."""
    try:
        templates = Templates.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValidationError, UnicodeDecodeError) as exc:
        raise UserError(f"{path}: {exc}") from exc
    problems = [*_label_problems(templates), *_phrasing_problems(templates)]
    if problems:
        raise UserError(f"{path}: {len(problems)} problems:\n  " + "\n  ".join(problems))
    return templates


def _label_problems(templates: Templates) -> Iterator[str]:
    for name, table in templates.tables.items():
        labels = [(field, label) for field, spec in table.fields.items() for label in spec.all()]
        for (field, label), (other, text) in permutations(labels, 2):
            if label == text or (field != other and label in text):
                yield f"{name}: label {label!r} of {field} is {text!r} of {other}, or a part of it"


def _phrasing_problems(templates: Templates) -> Iterator[str]:
    pairs: list[tuple[Intent, Phrasing]] = [
        (intent, phrasing) for intent, phrasings in templates.phrasings.items() for phrasing in phrasings
    ]
    for position, (intent, phrasing) in enumerate(pairs):
        if any(phrasing.id == other.id or phrasing.text == other.text for _, other in pairs[:position]):
            yield f"{phrasing.id}: its id or its text is a duplicate"
        placeholders = {name for _, name, _, _ in string.Formatter().parse(phrasing.text) if name}
        expected = PLACEHOLDERS[intent] | ({"field_c"} if phrasing.n_fields == 3 else set())
        if placeholders != expected:
            yield f"{phrasing.id}: has placeholders {sorted(placeholders)}, must have {sorted(expected)}"
