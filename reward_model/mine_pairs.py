"""Preference pairs from a training run: in each group, the best answer against the worst.

    agentgrpo reward-model mine runs/RUN --out mined.jsonl

A group is the rollouts of one question in one step. Answers are ranked by what the judge gave (`reward_parts.answer`);
the SQL bonus cannot be seen in a text and does not count. Guarantees: unscored rollouts, validation and groups whose
best and worst differ by less than --margin give no pair and are counted.
Not covered: a judge that was wrong. The reward model learns its mistakes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from foundation.command import alias
from foundation.errors import Unusable, UserError
from foundation.files import refuse_input, write_lines
from reward_model.pairs import Item, Pair, Skipped, grounded, judged, make_pair, parsed_lines, rollouts_file


@dataclass(frozen=True)
class Candidate:
    """A judged answer and the line that it stands on."""

    line: int
    item: Item
    value: float


@dataclass
class Mined:
    """Pairs and what gave none; `n_groups` counts groups with at least one scored rollout."""

    pairs: list[Pair] = field(default_factory=list)
    skipped: Skipped = field(default_factory=Skipped)
    n_groups: int = 0


def mine(paths: list[Path], *, margin: float) -> Mined:
    """Pairs of runs, or of their rollouts.jsonl. Raises UserError for one that cannot be read, and a margin of 0."""
    if not 0 < margin <= 1:
        raise UserError(f"--margin {margin:g}: must be above 0 and at most 1, the range of the judge's values")
    result = Mined()
    groups: dict[tuple[Path, str], list[Candidate]] = defaultdict(list)
    for path in map(rollouts_file, paths):
        for line, (group, item, value) in parsed_lines(path, _in_group, result.skipped):
            groups[path, group].append(Candidate(line, item, value))
    result.n_groups = len(groups)
    for candidates in groups.values():
        _take(candidates, result, margin)
    return result


def _in_group(row: dict[str, Any]) -> tuple[str, Item, float]:
    """The group that the run wrote down, else question and step; the answer and its value. Raises Unusable."""
    if row.get("mode", "train") != "train":
        raise Unusable("a validation rollout")
    group = row.get("group") or (row.get("question_id"), row.get("step"))
    return (str(group), *judged(row))


def _take(candidates: list[Candidate], result: Mined, margin: float) -> None:
    # Of equally good answers the first, so that the same file gives the same pairs.
    best, worst = max(candidates, key=lambda c: c.value), min(candidates, key=lambda c: c.value)
    if len(candidates) < 2:
        result.skipped.add("a group with one scored rollout", best.line)
    elif best.value - worst.value < margin:
        result.skipped.add(f"a group whose best and worst differ by less than {margin:g}", best.line)
    elif not best.item.response.strip():
        result.skipped.add("a group whose best answer is empty", best.line)
    elif best.item.response == worst.item.response:
        result.skipped.add("a group that gave one text two values", best.line)
    else:
        prompt = grounded(best.item.prompt, best.item.reference)
        result.pairs.append(make_pair(prompt, best.item.response, worst.item.response, kind="mined"))


def main(
    rollouts: Annotated[list[Path], typer.Argument(help="runs, or their rollouts.jsonl")],
    output: Annotated[Path, typer.Option("--out", help="JSONL file to write")],
    margin: Annotated[float, typer.Option(help="least difference between best and worst")] = 0.2,
) -> None:
    """Mine preference pairs from rollouts."""
    refuse_input(output, *rollouts)
    mined = mine(rollouts, margin=margin)
    if mined.skipped.counts:
        typer.echo(f"skipped:\n{mined.skipped}", err=True)
    if not mined.pairs:
        raise UserError(f"none of {mined.n_groups} groups gives a pair; lower --margin or add runs")
    write_lines(output, (pair.model_dump() for pair in mined.pairs))
    typer.echo(f"{len(mined.pairs)} pairs of {mined.n_groups} groups written to {output}")


if __name__ == "__main__":
    alias(main)
