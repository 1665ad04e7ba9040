"""Word problems about people, things and numbers, and how each is worked out.

    python -m recipes.math_cpu.problems      writes train.jsonl, val.jsonl, test_entities.jsonl and test.jsonl anew

Guarantees: the same seed gives the same problems; no person, no thing and no question stands in two of the splits;
`test` asks in wordings that no other split has. Each row's `meta` holds its kind, its call and its entities.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foundation.files import atomic_path

HERE = Path(__file__).resolve().parent
SEED = 1
SIZES = {"train": 720, "val": 96, "test_entities": 160, "test": 160}
PEOPLE = {
    "train": "Anna Ben Clara David Emma Felix Grace Henry Ida Jack Kate Leo Maria Nick Olga Paul Rosa Sam Tina Victor",
    "val": "Alice Bruno Carla Dan Elsa Frank",
    "test_entities": "Amir Bella Cem Dora Erik Farah Gus Hanna Ivan Jana",
    "test": "Adam Bea Carl Diana Eva Fritz Gina Hugo Ines Jonas",
}
THINGS = {
    "train": "apples books coins pens cards shells stamps eggs cookies balloons marbles roses",
    "val": "buttons lemons keys ribbons",
    "test_entities": "pears beads candles tickets plums stickers",
    "test": "nuts dolls cups photos bricks figs",
}
PLACES = {"train": "box bag basket drawer", "val": "tin", "test_entities": "jar crate", "test": "bucket case"}
# Wordings by kind; the last one of each is asked in the split `test` alone.
WORDINGS = {
    "sum": [
        "{who} has {a} {things} and gets {b} more. How many {things} does {who} have now?",
        "{who} finds {a} {things} on Monday and {b} {things} on Tuesday. How many does {who} find in all?",
        "There are {a} {things} in one {place} and {b} in another {place}. How many {things} are there together?",
        "{who} buys {a} {things}, and later another {b}. How many {things} does {who} have then?",
    ],
    "difference": [
        "{who} has {a} {things} and gives {b} away. How many {things} are left?",
        "{who} had {a} {things} and lost {b} of them. How many does {who} still have?",
        "There are {a} {things} in a {place}. {who} takes {b} out. How many stay in it?",
        "Of {a} {things}, {who} sells {b}. How many are not sold?",
    ],
    "product": [
        "There are {a} {things} in each {place}. {who} has {b} of them. How many {things} does {who} have in all?",
        "{who} packs {a} {things} into each {place} and fills {b}. How many {things} does {who} pack?",
        "Each {place} holds {a} {things}. How many {things} do {b} hold?",
        "{who} carries {b} times a {place} with {a} {things}. How many {things} does {who} carry?",
    ],
    "share": [
        "{who} shares {a} {things} equally among {b} friends. How many {things} does each get?",
        "{who} puts {a} {things} into {b} rows of the same length. How many are in each row?",
        "{a} {things} are split evenly into {b} parts. How many {things} are in one part?",
        "{who} divides {a} {things} fairly among {b} children. What does every child get?",
    ],
    "left_over": [
        "{who} has {b} of a {place} with {a} {things} each and gives {c} {things} away. How many {things} are left?",
        "{who} packs {a} {things} into each {place}, fills {b}, and sells {c} {things}. How many {things} remain?",
        "Each {place} holds {a} {things}. {who} has {b} and loses {c} {things}. How many does {who} still have?",
        "{who} fills {b} times a {place} with {a} {things}, and then {c} {things} break. How many are whole?",
    ],
    "series": [
        "{who} gets {a} {things} on the first day, one more each day, and {b} on the last. How many {things} in all?",
        "The rows of {things} have {a}, then one more each time, up to {b} in the last row. How many {things} "
        "are there?",
        "{who} puts {a} {things} into the first {place}, one more into each next, {b} into the last. How many in all?",
        "Day by day {who} saves one of the {things} more, from {a} up to {b}. How many {things} are that?",
    ],
}


@dataclass(frozen=True)
class Call:
    """How a problem is worked out: a tool, and what it gets."""

    tool: str
    text: str


@dataclass(frozen=True)
class Problem:
    """A question and its solution. `numbers` are a, b and perhaps c of its wording."""

    kind: str
    question: str
    numbers: tuple[int, ...]

    @property
    def call(self) -> Call:
        """The right call."""
        return CALLS[self.kind](*self.numbers)

    @property
    def answer(self) -> int:
        """The number that it asks for."""
        return ANSWERS[self.kind](*self.numbers)


CALLS: dict[str, Callable[..., Call]] = {
    "sum": lambda a, b: Call("calculate", f"{a}+{b}"),
    "difference": lambda a, b: Call("calculate", f"{a}-{b}"),
    "product": lambda a, b: Call("calculate", f"{a}*{b}"),
    "share": lambda a, b: Call("calculate", f"{a}/{b}"),
    "left_over": lambda a, b, c: Call("calculate", f"{a}*{b}-{c}"),
    "series": lambda a, b: Call("python", f"sum(range({a}, {b}+1))"),
}
ANSWERS: dict[str, Callable[..., int]] = {
    "sum": lambda a, b: a + b,
    "difference": lambda a, b: a - b,
    "product": lambda a, b: a * b,
    "share": lambda a, b: a // b,
    "left_over": lambda a, b, c: a * b - c,
    "series": lambda a, b: sum(range(a, b + 1)),
}
KINDS = tuple(CALLS)


def numbers_of(kind: str, rng: random.Random) -> tuple[int, ...]:
    """Numbers of 1 to 99 that suit a kind: nothing negative, no fraction, no number twice."""
    a, b, c = rng.sample(range(2, 100), 3)
    if kind in ("difference", "series"):
        return (max(a, b), min(a, b)) if kind == "difference" else (min(a, b), max(a, b))
    if kind == "share":
        b = rng.randint(2, 12)
        a = b * rng.choice([n for n in range(2, 99 // b + 1) if n != 1])
        return a, b
    if kind == "left_over":
        a, b = rng.sample(range(3, 13), 2)
        return a, b, rng.choice([n for n in range(2, min(a * b, 100)) if n not in (a, b)])
    return (a, b) if kind == "sum" else (a, rng.choice([n for n in range(2, 13) if n != a]))


def make(kind: str, wording: str, rng: random.Random, *, who: str, things: str, place: str) -> Problem:
    """One problem about these entities."""
    numbers = numbers_of(kind, rng)
    slots = dict(zip("abc", numbers, strict=False))
    return Problem(kind, wording.format(who=who, things=things, place=place, **slots), numbers)


def split(name: str, *, seed: int = SEED) -> list[dict[str, Any]]:
    """The rows of a split, its kinds in turn."""
    rng = random.Random(f"{seed} {name}")
    rows: dict[str, dict[str, Any]] = {}
    while len(rows) < SIZES[name]:
        kind = KINDS[len(rows) % len(KINDS)]
        wordings = WORDINGS[kind][-1:] if name == "test" else WORDINGS[kind][:-1]
        who, things, place = (rng.choice(words[name].split()) for words in (PEOPLE, THINGS, PLACES))
        problem = make(kind, rng.choice(wordings), rng, who=who, things=things, place=place)
        entity = {"who_name": who, "things_name": things}
        rows.setdefault(problem.question, {"answer": f"#### {problem.answer}", "kind": kind, "entity": entity})
    return [
        {
            "id": f"{name}-{i}",
            "question": question,
            "answer": row["answer"],
            "task_type": row["kind"],
            "meta": {"entity": row["entity"], "split": name},
        }
        for i, (question, row) in enumerate(rows.items(), start=1)
    ]


def main() -> None:
    """Write all splits."""
    for name in SIZES:
        with atomic_path(HERE / f"{name}.jsonl") as temp:
            temp.write_text("".join(json.dumps(row) + "\n" for row in split(name)), encoding="utf-8")


if __name__ == "__main__":
    main()
