"""Preference pairs on disk: one JSON object a line, {"chosen": [turns], "rejected": [turns]}, TRL's own format.

Guarantees: both sides begin with the same user turn and end with a turn of the assistant; bad lines are counted by
reason, with their first line numbers. `kind` says what is wrong with the rejected side, where that is known.
Not covered: whether the chosen side is really better.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeGuard

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from foundation.errors import Unusable, UserError
from foundation.files import json_objects

SHOWN_LINES = 5
MARK = "\n\n参考答案："
Dialogue = Sequence[tuple[str, str]]  # (role, content)


class Turn(BaseModel):
    """One turn of a dialogue."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, hide_input_in_errors=True)

    role: Literal["user", "assistant"]
    content: str


class Pair(BaseModel):
    """Two dialogues of one prompt; the first is the better one."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    chosen: list[Turn]
    rejected: list[Turn]
    kind: str = ""

    @model_validator(mode="after")
    def _comparable(self) -> Pair:
        for name, turns in (("chosen", self.chosen), ("rejected", self.rejected)):
            if len(turns) < 2 or turns[0].role != "user" or turns[-1].role != "assistant":
                raise ValueError(f"{name} must begin with a user turn and end with an assistant turn")
        if self.chosen[0] != self.rejected[0]:
            raise ValueError("chosen and rejected begin with different prompts")
        if self.chosen == self.rejected:
            raise ValueError("chosen equals rejected")
        return self

    @property
    def prompt(self) -> str:
        """The first user turn; pairs with the same prompt stay on one side of a validation split."""
        return self.chosen[0].content

    @property
    def dialogues(self) -> list[Dialogue]:
        """The chosen side and the rejected one."""
        return [[(turn.role, turn.content) for turn in side] for side in (self.chosen, self.rejected)]


def make_pair(prompt: str, chosen: str, rejected: str, *, kind: str = "") -> Pair:
    """A pair of single answers."""
    ask = Turn(role="user", content=prompt)
    answers = [Turn(role="assistant", content=text) for text in (chosen, rejected)]
    return Pair(chosen=[ask, answers[0]], rejected=[ask, answers[1]], kind=kind)


class Item(BaseModel):
    """One response to one prompt; the reference answer may be empty."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    prompt: str
    response: str
    reference: str = ""

    @property
    def dialogue(self) -> Dialogue:
        """The turns that the model reads."""
        return (("user", grounded(self.prompt, self.reference)), ("assistant", self.response))


@dataclass
class Skipped:
    """What was left out: how often by reason, and the first line numbers (from 1) of each reason."""

    counts: Counter[str] = field(default_factory=Counter)
    lines: dict[str, list[int]] = field(default_factory=dict)

    def add(self, reason: str, line: int) -> None:
        """Count one more."""
        self.counts[reason] += 1
        if self.counts[reason] <= SHOWN_LINES:
            self.lines.setdefault(reason, []).append(line)

    def __str__(self) -> str:
        if not self.counts:
            return "  nothing: there is no line"
        return "\n".join(
            f"  {count} x {reason} (line {', '.join(map(str, self.lines[reason]))}"
            f"{', ...' if count > SHOWN_LINES else ''})"
            for reason, count in self.counts.most_common()
        )


def parsed[T](
    rows: Iterable[tuple[int, dict[str, Any]]], parse: Callable[[dict[str, Any]], T], skipped: Skipped
) -> Iterator[tuple[int, T]]:
    """What `parse` makes of each row, with its number; Unusable and pydantic's errors are counted by their reasons."""
    for number, row in rows:
        try:
            yield number, parse(row)
        except (Unusable, ValidationError) as exc:
            skipped.add(str(exc) if isinstance(exc, Unusable) else reason_of(exc), number)


def parsed_lines[T](path: Path, parse: Callable[[dict[str, Any]], T], skipped: Skipped) -> Iterator[tuple[int, T]]:
    """The same for the lines of a file; those that hold no JSON object are counted too, blank ones are nothing.

    Raises UserError when the file cannot be read.
    """
    try:
        yield from parsed(json_objects(path, skipped.add), parse, skipped)
    except OSError as exc:
        raise UserError(f"{path}: cannot be read ({exc.strerror}); give the path of a JSONL file") from None


def read_pairs(path: Path) -> tuple[list[Pair], Skipped]:
    """All pairs of a file in the converted format, and what was skipped. Raises UserError when none is left."""
    skipped = Skipped()
    pairs = [pair for _, pair in parsed_lines(path, Pair.model_validate, skipped)]
    if not pairs:
        raise UserError(
            f"{path}: no line is a pair of the form {{chosen: [turns], rejected: [turns]}}. "
            f"`agentgrpo reward-model convert` makes one. Skipped:\n{skipped}"
        )
    return pairs, skipped


def rollouts_file(path: Path) -> Path:
    """The file of rollouts that a run's folder holds; a file is itself."""
    return path / "rollouts.jsonl" if path.is_dir() else path


def judged(rollout: dict[str, Any]) -> tuple[Item, float]:
    """The answer of a line of rollouts.jsonl, and what the judge gave it, without the SQL bonus. Raises Unusable."""
    if rollout.get("unscored") or rollout.get("reward") is None:
        raise Unusable("an unscored rollout")
    question, answer, reference = (rollout.get(key) for key in ("question", "answer", "reference"))
    if not isinstance(question, str) or not isinstance(answer, str) or not isinstance(reference, str | None):
        raise Unusable("no question, reference or answer as text")
    parts = rollout.get("reward_parts")
    value = parts.get("answer") if isinstance(parts, dict) else None
    if not in_unit_range(value):
        raise Unusable("no reward_parts.answer in [0, 1]")
    return Item(prompt=question, response=answer, reference=reference or ""), float(value)


def in_unit_range(value: Any) -> TypeGuard[float]:
    """True for a number in [0, 1]."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def reason_of(error: ValidationError) -> str:
    """The first problem of a row in a few words, without its values."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
    text = first["msg"].removeprefix("Value error, ")
    return f"{place}: {text}" if place else text


def split_by_key[T](rows: list[T], keys: list[str], *, share: float, seed: int) -> tuple[list[T], list[T]]:
    """Rows for training and for validation; rows of one key stay together, `share` of the keys are held out.

    At least one key is on each side. Raises UserError when that is impossible.
    """
    distinct = sorted(set(keys))
    if not 0 < share < 1 or len(distinct) < 2:
        raise UserError(
            f"a validation share of {share:g} of {len(distinct)} prompts: the share must lie between 0 and 1, and "
            "there must be two prompts or more. Add pairs, or name a validation file with --eval_dataset"
        )
    random.Random(seed).shuffle(distinct)
    n_held = min(len(distinct) - 1, max(1, round(share * len(distinct))))
    held_out = set(distinct[:n_held])
    train = [row for row, key in zip(rows, keys, strict=True) if key not in held_out]
    return train, [row for row, key in zip(rows, keys, strict=True) if key in held_out]


def grounded(prompt: str, reference: str) -> str:
    """The prompt, followed by the reference where there is one: bundled and mined pairs and the scoring API say it so.

    A model of questions alone can only judge style: a fluent invention wins.
    """
    return f"{prompt}{MARK}{reference}" if reference else prompt
