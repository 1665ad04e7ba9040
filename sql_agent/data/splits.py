"""Splitting questions so that no entity is on both sides.

Guarantees: questions that share an entity or a text land in the same split; rows with a split of their own (meta.split)
keep it, and an entity, phrasing or text on both sides of such a split is an error. Entities are read from the evidence
(table and row id) and from the *_id and *_name entries of meta.entity, whatever the tables are called; a question with
neither stands for itself by its text. Not covered: entities that only the words of a question name.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from foundation.errors import UserError, first_of
from foundation.grouping import grouped
from sql_agent.data.templates import SPLITS, Split
from sql_agent.records import Question

ENTITY_ENTRY = re.compile(r"(?:(?P<kind>.+?)_)?(?P<what>id|name)s?(?:_[a-z0-9]+)?")
TOLERANCE = 0.25

Key = tuple[str, ...]


@dataclass(frozen=True)
class Item:
    """A question, its line in the file it came from, and the keys of what it touches."""

    line: int
    question: Question
    keys: frozenset[Key]

    @property
    def fixed(self) -> Split | None:
        """The split that the row itself asks for."""
        return self.question.meta.get("split")


def make_items(rows: Iterable[tuple[int, Question]]) -> list[Item]:
    """Rows with their keys; `drug_id` 7 and row 7 of the table that the evidence names for drugs are one key."""
    rows = list(rows)
    tables = _tables_of_kinds(question for _, question in rows)
    return [Item(line, question, frozenset(_keys(question, tables))) for line, question in rows]


def check_leaks(items: list[Item]) -> None:
    """Raise UserError when an entity, a phrasing or a text is in two of the splits that the rows ask for."""
    first: dict[Key, dict[Split, int]] = {}
    for item in items:
        if item.fixed:
            phrasing = item.question.meta.get("phrasing")
            for key in item.keys | ({("phrasing", str(phrasing))} if phrasing else set()):
                first.setdefault(key, {}).setdefault(item.fixed, item.line)
    leaks = [(key, where) for key, where in first.items() if len(where) > 1]
    if leaks:
        lines = [
            f"{' '.join(key)}: " + ", ".join(f"{split} (row {line})" for split, line in where.items())
            for key, where in sorted(leaks)
        ]
        title = (
            f"{len(leaks)} leaks: meta.split puts the same thing into two splits; "
            "move the rows into one split, or drop meta.split to have them split here:"
        )
        raise UserError("\n  ".join([title, *first_of(lines)]))


def assign(
    items: list[Item], *, val_share: float, test_share: float, seed: int
) -> tuple[dict[Split, list[Item]], list[str]]:
    """Deal connected items out by a seeded shuffle, close to the wanted shares; also returns warnings.

    Raises UserError when the shares are impossible, or a row without a split ties two fixed splits together.
    """
    if min(val_share, test_share) < 0 or not val_share + test_share < 1:
        raise UserError(f"shares {val_share:g} and {test_share:g}: each must be >= 0 and their sum below 1")
    shares: dict[Split, float] = {"train": 1 - val_share - test_share, "val": val_share, "test": test_share}
    targets: dict[Split, float] = {split: share * len(items) for split, share in shares.items()}
    groups = connected(items)
    chosen: dict[Split, list[list[Item]]] = {split: [] for split in SPLITS}
    free = [group for group in groups if not _place_fixed(group, chosen)]
    random.Random(seed).shuffle(free)
    have: dict[Split, int] = {split: sum(map(len, chosen[split])) for split in SPLITS}
    for group in sorted(free, key=len, reverse=True):
        split = _neediest(len(group), have, targets)
        chosen[split].append(group)
        have[split] += len(group)
    _fill_empty(chosen, targets)
    result: dict[Split, list[Item]] = {
        split: sorted((i for g in chosen[split] for i in g), key=lambda i: i.line) for split in SPLITS
    }
    return result, _warnings(result, targets, groups) if free else []


def connected(items: list[Item]) -> list[list[Item]]:
    """Groups of items that share keys, directly or through others, in the order of their first items."""
    from scipy.cluster.hierarchy import DisjointSet  # takes a second, and readers of questions do not need it

    sets = DisjointSet(key for item in items for key in item.keys)
    for item in items:
        anchor, *others = item.keys
        for other in others:
            sets.merge(anchor, other)
    return list(grouped(items, lambda item: sets[min(item.keys)]).values())


def _place_fixed(group: list[Item], chosen: dict[Split, list[list[Item]]]) -> bool:
    fixed: set[Split] = {item.fixed for item in group if item.fixed}
    if len(fixed) > 1:
        lines = ", ".join(str(item.line) for item in group if not item.fixed)
        raise UserError(f"rows {lines} have no meta.split and touch entities of {sorted(fixed)}; remove or split them")
    for split in fixed:
        chosen[split].append(group)
    return bool(fixed)


def _neediest(size: int, have: dict[Split, int], targets: dict[Split, float]) -> Split:
    """The relatively emptiest split that the group still fits into, else the one that lacks most rows."""
    fitting: list[Split] = [split for split in SPLITS if targets[split] > 0 and have[split] + size <= targets[split]]
    if fitting:
        return min(fitting, key=lambda split: have[split] / targets[split])
    return max(SPLITS, key=lambda split: targets[split] - have[split])


def _fill_empty(chosen: dict[Split, list[list[Item]]], targets: dict[Split, float]) -> None:
    """A wanted split that stayed empty gets the smallest group that training can spare."""
    for split in SPLITS:
        spare = [group for group in chosen["train"] if not any(item.fixed for item in group)]
        if targets[split] > 0 and not chosen[split] and len(chosen["train"]) > 1 and spare:
            smallest = min(spare, key=len)
            chosen["train"] = [group for group in chosen["train"] if group is not smallest]
            chosen[split].append(smallest)


def _warnings(result: dict[Split, list[Item]], targets: dict[Split, float], groups: list[list[Item]]) -> list[str]:
    missed = [s for s in SPLITS if abs(len(result[s]) - targets[s]) > max(1.0, TOLERANCE * targets[s])]
    missed += [s for s in SPLITS if targets[s] > 0 and not result[s] and s not in missed]
    if not missed:
        return []
    largest = max(groups, key=len)
    sizes = ", ".join(f"{split} {len(result[split])} (wanted {targets[split]:.0f})" for split in SPLITS)
    return [
        f"the wanted shares cannot be met: {sizes}. Of {len(groups)} groups of rows that share entities, the largest "
        f"has {len(largest)} rows (row {largest[0].line} is one); a group is never torn apart"
    ]


def _keys(question: Question, tables: dict[str, str]) -> Iterable[Key]:
    """The row ids and names it touches, and always its text, so that equal texts stay together."""
    yield ("text", normalised(question.question))
    for piece in question.evidence:
        yield ("row", piece.source_table, str(piece.row_id))
    for kind, what, value in _entity_entries(question.meta.get("entity")):
        yield ("row", tables.get(kind, kind), value) if what == "id" else ("name", kind, value)


def _entity_entries(entity: Any) -> Iterable[tuple[str, str, str]]:
    """(kind, id or name, value) of each entry such as drug_id, disease_name_b or drug_ids."""
    for entry, value in entity.items() if isinstance(entity, dict) else ():
        match = ENTITY_ENTRY.fullmatch(str(entry))
        for item in value if isinstance(value, list) else [value]:
            if match and item not in (None, ""):
                yield match["kind"] or "", match["what"], str(item)


def _tables_of_kinds(questions: Iterable[Question]) -> dict[str, str]:
    """Which table holds a kind of entity, where rows that have both say so without contradiction."""
    seen: dict[str, set[str]] = {}
    for question in questions:
        rows: dict[str, set[str]] = {}
        for piece in question.evidence:
            rows.setdefault(piece.source_table, set()).add(str(piece.row_id))
        ids: dict[str, set[str]] = {}
        for kind, what, value in _entity_entries(question.meta.get("entity")):
            if what == "id":
                ids.setdefault(kind, set()).add(value)
        for kind, values in ids.items() if rows else ():
            holding = {table for table, there in rows.items() if values <= there}
            seen[kind] = seen.get(kind, holding) & holding
    return {kind: next(iter(tables)) for kind, tables in seen.items() if len(tables) == 1}


def normalised(text: str) -> str:
    """A text without spaces, punctuation, width and case, for comparing questions."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(char for char in folded if char.isalnum()) or folded
